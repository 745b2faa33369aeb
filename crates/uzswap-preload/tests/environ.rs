//! Our library in an environment: the library itself cannot be linked into a test.
#![allow(missing_docs, dead_code, reason = "modules of the library, in part")]

#[path = "../src/environ.rs"]
mod environ;

use uzswap_sys::file;

/// The list that is left, if any is.
fn without_ours(list: &str) -> Option<String> {
    let mut list = format!("{list}\0").into_bytes();
    let left = environ::without_ours(&mut list);
    let text = list.split(|byte| *byte == 0).next().unwrap_or_default();
    left.then(|| String::from_utf8_lossy(text).into_owned())
}

#[test]
fn libraries_of_the_user_stay_in_the_list() {
    assert_eq!(without_ours("/a/libuzswap-1.so"), None);
    assert_eq!(
        without_ours("/a/libuzswap-1.so:/b/x.so y.so"),
        Some("/b/x.so y.so".into())
    );
    assert_eq!(
        without_ours("/b/x.so:/a/libuzswap-1.so"),
        Some("/b/x.so".into())
    );
}

#[test]
fn of_memory_files_only_ours_is_taken_out() {
    let path = |name| {
        let fd = file::memfd_create(name, file::MFD_CLOEXEC).expect("a memory file");
        format!("/proc/self/fd/{fd}")
    };
    let (ours, theirs) = (path(c"libuzswap-1.so"), path(c"theirs"));
    assert_eq!(without_ours(&ours), None);
    assert_eq!(without_ours(&format!("{ours}:{theirs}")), Some(theirs));
}
