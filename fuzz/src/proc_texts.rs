//! *What*: files of `/proc`. A range of addresses is taken from a line that has one, and what a
//! process has referenced is no more than what it has.

use uzswap_analyze::process::Memory;
use uzswap_corpus::anonymous;

/// See the head.
pub fn are_read(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for line in text.lines() {
        if let Some((start, end)) = anonymous(line) {
            let range = line.split_whitespace().next().expect("a range");
            let (first, second) = range.split_once('-').expect("two numbers");
            let number = |text| u64::from_str_radix(text, 16).expect("a number");
            assert_eq!((start, end), (number(first), number(second)));
        }
    }
    let memory = Memory::of_smaps(&text);
    assert!(memory.touched <= memory.anon, "{memory:?}");
}
