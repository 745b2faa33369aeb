//! A directory for one story, and programs compiled into it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{find_or_skip, skip, workspace};

/// A directory removed when dropped. Everyone may write to it: ordinary users run jobs in it.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
}

/// A name unique on this machine, for what a story makes outside its process.
pub fn own_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nr = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("uzswap-e2e.{}.{nr}", std::process::id())
}

impl Scratch {
    /// A fresh directory below `TMPDIR`, or `/tmp`.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        Self::under(&std::env::temp_dir())
    }

    /// A fresh directory below another one.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn under(parent: &Path) -> Self {
        let dir = parent.join(own_name());
        fs::create_dir(&dir).expect("a scratch directory can be made");
        fs::set_permissions(&dir, Permissions::from_mode(0o777)).expect("it is ours");
        Self { dir }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Path of `name` in the directory.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes a file that everyone may read and write.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, content).expect("scratch files can be written");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("it is ours");
        path
    }

    /// Compiles `tests/programs/<source>` (C or C++ by its suffix) and returns the executable.
    ///
    /// # Panics
    /// With the compiler's message if it does not compile.
    #[must_use]
    pub fn compile(&self, source: &str) -> PathBuf {
        self.compile_path(&workspace().join("tests/programs").join(source), &[])
    }

    /// Compiles `tests/programs/<source>` to `name` with a certain compiler. `None`, and a line
    /// that says so, if this machine cannot.
    #[must_use]
    pub fn compile_by(
        &self,
        compiler: &str,
        source: &str,
        name: &str,
        options: &[&str],
    ) -> Option<PathBuf> {
        let package = match compiler {
            "musl-gcc" => "musl-tools",
            other => other,
        };
        let compiler = find_or_skip(compiler, package)?;
        let program = self.join(name);
        let output = Command::new(compiler)
            .args(["-std=gnu17", "-O1", "-pthread", "-o"])
            .arg(&program)
            .arg(workspace().join("tests/programs").join(source))
            .args(options)
            .output()
            .expect("the compiler starts");
        if output.status.success() {
            return Some(program);
        }
        let why = String::from_utf8_lossy(&output.stderr);
        skip(&format!("no {name} program can be built here: {why}"));
        None
    }

    /// Compiles any C or C++ file with extra compiler options.
    ///
    /// # Panics
    /// With the compiler's message if it does not compile.
    #[must_use]
    pub fn compile_path(&self, source: &Path, options: &[&str]) -> PathBuf {
        let is_c = source.extension().is_some_and(|e| e == "c");
        let (compiler, standard) = if is_c {
            ("gcc", "-std=gnu17")
        } else {
            ("g++", "-std=c++20")
        };
        let stem = source.file_stem().expect("sources have names");
        let executable = self.join(stem);
        let output = Command::new(compiler)
            .args([standard, "-O2", "-g", "-Wall", "-pthread", "-o"])
            .arg(&executable)
            .arg(source)
            .args(options)
            .args(["-ldl", "-lrt"])
            .output()
            .expect("gcc is installed");
        assert!(
            output.status.success(),
            "{} does not compile:\n{}",
            source.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        executable
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kept because the story failed: {}", self.dir.display());
        } else {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}
