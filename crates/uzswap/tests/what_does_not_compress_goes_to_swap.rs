//! What fits in RAM not even compressed goes to a swap file, which leaves nothing behind.
#![allow(
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "test data is cut to size on purpose"
)]

use std::fs;
use std::path::PathBuf;

use uzswap::{BuildError, Pool, Swap};

const LIMIT: u64 = 16 << 20;

/// A directory on a disk, removed with all that is in it.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!(
            "/var/tmp/uzswap-test-{name}-{}",
            std::process::id()
        ));
        fs::create_dir_all(&path).unwrap();
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn noise(region: &mut [u8], check: bool) {
    let mut x = 88_172_645_463_325_252_u64;
    for word in region.chunks_exact_mut(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        match check {
            true => assert_eq!(*word, x.to_le_bytes()),
            false => word.copy_from_slice(&x.to_le_bytes()),
        }
    }
}

fn hold_four_times(swap: Swap) {
    let pool = Pool::builder()
        .limit(LIMIT)
        .swap(swap)
        .swap_max(256 << 20)
        .build()
        .unwrap();
    let mut region = pool.map(4 * LIMIT as usize).unwrap();
    noise(&mut region, false);
    let stats = pool.stats();
    assert!(stats.swapped >= 2 * LIMIT, "{stats:?}");
    assert!(stats.peak <= LIMIT, "{stats:?}");
    noise(&mut region, true);
    // A fork child reads what its parent has swapped.
    // SAFETY: the child uses the pool and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        noise(&mut region, true);
        // SAFETY: ends the child.
        unsafe { libc::_exit(42) };
    }
    let mut status = 0;
    // SAFETY: waits for a child of ours.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42,
        "{status:#x}"
    );
    noise(&mut region, true);
}

#[test]
fn to_an_unnamed_file() {
    let dir = Dir::new("unnamed");
    hold_four_times(Swap::Dir(dir.0.clone()));
    assert_eq!(
        fs::read_dir(&dir.0).unwrap().count(),
        0,
        "nothing is left behind"
    );
}

#[test]
fn to_a_named_file() {
    let dir = Dir::new("named");
    let path = dir.0.join("swap");
    fs::write(&path, []).unwrap();
    hold_four_times(Swap::File(path.clone()));
    fs::write(&path, "data of somebody's").unwrap();
    let refused = Pool::builder()
        .swap(Swap::File(path.clone()))
        .build()
        .unwrap_err();
    assert!(matches!(refused, BuildError::Swap { .. }), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), b"data of somebody's");
}

#[test]
fn a_place_that_cannot_be_is_refused() {
    let nowhere = Swap::Dir("/nonexistent/place".into());
    let refused = Pool::builder()
        .swap(nowhere)
        .build()
        .unwrap_err()
        .to_string();
    assert!(refused.contains("/nonexistent/place"), "{refused}");
    let nothing = Swap::File("/nonexistent".into());
    assert!(Pool::builder().swap(nothing).build().is_err());
}
