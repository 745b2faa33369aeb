//! *What*: `uzswap jupyter`: writes and removes kernelspecs, the files that tell Jupyter how to
//! start a kernel.
//!
//! *Invariants*: only a kernelspec of ours is replaced or removed: one whose command is this
//! command's `run`. The kernel that is wrapped is left as it is.
//! *Locking*: none. *Context*: one thread.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::print;
use crate::args::{Install, Jupyter, JupyterAction, Uninstall};
use crate::status::{USAGE, refused};

/// What starts the kernel of Python.
const IPYKERNEL: [&str; 5] = ["python3", "-m", "ipykernel_launcher", "-f", CONNECTION];
/// Stands for the path of the connection file.
const CONNECTION: &str = "{connection_file}";
/// Marks a kernelspec as ours, in its metadata.
const MARK: &str = "uzswap";

/// Installs or removes.
pub fn jupyter(options: &Jupyter) -> Result<u8> {
    match &options.action {
        JupyterAction::Install(install) => add(install),
        JupyterAction::Uninstall(uninstall) => remove(uninstall),
    }
}

fn add(options: &Install) -> Result<u8> {
    let name = options
        .name
        .clone()
        .unwrap_or_else(|| format!("uzswap-{}", options.kernel));
    check_name(&name)?;
    let dir = kernels(options.prefix.as_deref())?.join(&name);
    let file = dir.join("kernel.json");
    if file.exists() && !is_ours(&file) {
        bail!("{} is not uzswap's: give another --name", file.display());
    }
    let uzswap = std::env::current_exe().context("cannot find out where uzswap is")?;
    let spec = wrap(&find(options)?, &uzswap, options)?;
    fs::create_dir_all(&dir)
        .and_then(|()| fs::write(&file, serde_json::to_string_pretty(&spec)? + "\n"))
        .with_context(|| format!("cannot write {}: give another --prefix", file.display()))?;
    print(&format!(
        "installed {name} in {}\nto start it: choose '{}' in JupyterLab, or 'jupyter console \
         --kernel {name}'\nto remove it: uzswap jupyter uninstall --name {name}\n",
        dir.display(),
        spec["display_name"].as_str().unwrap_or_default()
    ))
}

fn remove(options: &Uninstall) -> Result<u8> {
    let name = &options.name;
    check_name(name)?;
    let dir = kernels(options.prefix.as_deref())?.join(name);
    let file = dir.join("kernel.json");
    if !file.exists() {
        bail!(
            "there is no kernelspec {name} in {}: see 'jupyter kernelspec list'",
            dir.display()
        );
    }
    if !is_ours(&file) {
        bail!(
            "{} is not uzswap's: remove it by 'jupyter kernelspec remove {name}'",
            file.display()
        );
    }
    fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    // Somebody may have put an icon there.
    let _ = fs::remove_dir(&dir);
    print(&format!("removed {name} from {}\n", dir.display()))
}

/// Jupyter's own rule for names.
fn check_name(name: &str) -> Result<()> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_allowed) {
        return Err(refused!(
            USAGE,
            "'{name}' is no name of a kernelspec: use letters, digits, '.', '_' and '-'"
        ));
    }
    Ok(())
}

/// The directory of kernelspecs below `prefix`, or this user's.
fn kernels(prefix: Option<&Path>) -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let data = match (prefix, variable("JUPYTER_DATA_DIR")) {
        (Some(prefix), _) => prefix.join("share/jupyter"),
        (None, Some(dir)) => dir.into(),
        (None, None) => {
            let home = variable("HOME").map(|home| PathBuf::from(home).join(".local/share"));
            let data = variable("XDG_DATA_HOME").map(PathBuf::from).or(home);
            data.context("HOME is not set: give --prefix")?
                .join("jupyter")
        }
    };
    Ok(data.join("kernels"))
}

/// The kernelspec to wrap, from where Jupyter looks for it.
fn find(options: &Install) -> Result<Value> {
    let name = &options.kernel;
    let path = std::env::var_os("JUPYTER_PATH").unwrap_or_default();
    let mut places: Vec<_> = std::env::split_paths(&path)
        .map(|dir| dir.join("kernels"))
        .collect();
    places.extend(kernels(options.prefix.as_deref()));
    places.extend(kernels(None));
    places.extend(
        beside_python()
            .into_iter()
            .flat_map(|prefix| kernels(Some(&prefix))),
    );
    places.extend(
        ["/usr/local", "/usr"]
            .iter()
            .flat_map(|dir| kernels(Some(Path::new(dir)))),
    );
    for place in places {
        let file = place.join(name).join("kernel.json");
        let Ok(text) = fs::read(&file) else { continue };
        let spec: Value = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no kernelspec", file.display()))?;
        let spec = with_program(spec, &place);
        if is_of_uzswap(&spec) {
            bail!(
                "{} runs under uzswap already: give another --kernel",
                file.display()
            );
        }
        return Ok(spec);
    }
    if name == "python3" {
        return Ok(json!({
            "argv": IPYKERNEL, "display_name": "Python 3", "language": "python",
        }));
    }
    bail!("there is no kernelspec {name}: see 'jupyter kernelspec list'")
}

/// `spec` with the path of its program, if that lies beside `place`. Jupyter starts its own Python
/// for one that is called `python` and no more, but looks at the first word only.
fn with_program(mut spec: Value, place: &Path) -> Value {
    let name = spec["argv"][0].as_str().filter(|name| !name.contains('/'));
    let prefix = place.ancestors().nth(3);
    if let (Some(name), Some(prefix)) = (name, prefix) {
        let program = prefix.join("bin").join(name);
        if program.exists() {
            spec["argv"][0] = json!(program);
        }
    }
    spec
}

/// Where the Python in PATH is installed, or its virtual environment.
fn beside_python() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&path).filter(|dir| dir.join("python3").exists());
    Some(found.next()?.parent()?.to_owned())
}

/// The kernelspec `spec` behind `uzswap run`.
fn wrap(spec: &Value, uzswap: &Path, options: &Install) -> Result<Value> {
    let argv = spec["argv"].as_array().filter(|argv| !argv.is_empty());
    let argv = argv.with_context(|| format!("kernelspec {} has no argv", options.kernel))?;
    let mut command = vec![json!(uzswap), json!("run")];
    if let Some(ram) = options.ram {
        command.extend([json!("--ram"), json!(ram.0.to_string())]);
    }
    // Jupyter puts the path in, as it does in the kernel's own words.
    if argv
        .iter()
        .any(|word| word.as_str().is_some_and(|word| word.contains(CONNECTION)))
    {
        command.extend([json!("--jupyter"), json!(CONNECTION)]);
    }
    command.push(json!("--"));
    command.extend(argv.iter().cloned());
    let limit = options
        .ram
        .map_or_else(String::new, |ram| format!(", {ram}"));
    let display = spec["display_name"].as_str().unwrap_or(&options.kernel);
    let mut wrapped = spec.clone();
    wrapped["argv"] = command.into();
    wrapped["display_name"] = format!("{display} (uzswap{limit})").into();
    // The kernel would get a SIGINT twice: as one of the process group, and passed on.
    wrapped["interrupt_mode"] = "message".into();
    wrapped["metadata"][MARK] = true.into();
    Ok(wrapped)
}

fn is_of_uzswap(spec: &Value) -> bool {
    spec["metadata"][MARK] == true
}

fn is_ours(file: &Path) -> bool {
    let spec = fs::read(file).ok();
    let spec = spec.and_then(|text| serde_json::from_slice(&text).ok());
    spec.is_some_and(|spec| is_of_uzswap(&spec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_wrapped_and_keeps_the_rest() {
        let options = Install {
            ram: Some("4G".parse().unwrap()),
            kernel: "python3".to_owned(),
            name: None,
            prefix: None,
        };
        let spec = json!({
            "argv": ["/v/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": "Python 3", "language": "python", "env": {"A": "1"},
            "metadata": {"debugger": true},
        });
        let wrapped = wrap(&spec, Path::new("/usr/bin/uzswap"), &options).unwrap();
        let argv = wrapped["argv"].to_string();
        assert!(
            argv.starts_with(
                r#"["/usr/bin/uzswap","run","--ram","4294967296","--jupyter","{connection_file}","--","/v/bin/python","#
            ),
            "{argv}"
        );
        assert_eq!(wrapped["display_name"], "Python 3 (uzswap, 4 GiB)");
        assert_eq!(wrapped["env"], spec["env"]);
        assert_eq!(
            wrapped["metadata"],
            json!({"debugger": true, "uzswap": true})
        );
        assert!(is_of_uzswap(&wrapped) && !is_of_uzswap(&spec));
        assert!(wrap(&json!({}), Path::new("/u"), &options).is_err());
    }

    #[test]
    fn names_are_jupyters() {
        for wrong in ["", ".", "..", "a/b", "../x", "a b"] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
        assert!(check_name("uzswap-python3.11_x").is_ok());
    }
}
