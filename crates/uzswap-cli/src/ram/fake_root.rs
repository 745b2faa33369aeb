//! A file system root for tests, with cgroups and a machine's memory.

use std::fs;
use std::path::PathBuf;

pub const MIB: u64 = 1 << 20;

/// A file system root. The machine has 8 GiB, of which 4 are available.
pub struct Root(pub PathBuf);

impl Root {
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("uzswap-{name}-{}", std::process::id()));
        let root = Root(dir);
        root.available(4096);
        root
    }

    /// In cgroup `own`, of v2.
    pub fn unified(name: &str, own: &str) -> Self {
        let root = Root::new(name);
        root.add("proc/self/cgroup", &format!("0::{own}\n"));
        root.add(
            "proc/self/mountinfo",
            "29 23 0:26 / /cg rw shared:4 - cgroup2 cgroup2 rw\n",
        );
        root
    }

    pub fn available(&self, mib: u64) {
        let kib = mib * 1024;
        let text = format!("MemTotal: 8388608 kB\nMemAvailable: {kib} kB\n");
        self.add("proc/meminfo", &text);
    }

    pub fn add(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn mib(&self, path: &str, mib: u64) {
        self.add(path, &format!("{}\n", mib * MIB));
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
