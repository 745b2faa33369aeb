//! *What*: the command line of this process, quoted for a shell.

/// The command line.
pub fn this() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    std::env::args_os()
        .map(|arg| {
            let arg = arg.to_string_lossy();
            if !arg.is_empty() && arg.chars().all(plain) {
                arg.into_owned()
            } else {
                format!("'{}'", arg.replace('\'', "'\\''"))
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}
