//! *What*: the texts that come by the environment and the command line. What says where the group
//! is reads the same after it was written; a codec that is read is written so that it reads the
//! same; a plan of failures is refused or read; a size is a number times a power of 1024, exactly.

use uzswap_compress::Codec;
use uzswap_group::environment::{MAX_FILE, Told};
use uzswap_group::library::is_library;
use uzswap_io::inject::Plan;
use uzswap_swap::size::Size;

/// See the head.
pub fn is_read_as_written(input: &[u8]) {
    if let Some(told) = Told::parse(input) {
        let mut written = Vec::new();
        told.write(|part| written.extend_from_slice(part));
        let again = Told::parse(&written).expect("what was written is read");
        assert_eq!(
            (again.group, again.supervisor),
            (told.group, told.supervisor)
        );
        for (told, again) in [(told.library, again.library), (told.image, again.image)] {
            assert_eq!(again, if told.len() < MAX_FILE { told } else { b"" });
        }
    }
    // A link of /proc is looked at: what is there differs from machine to machine.
    if !input.starts_with(b"/proc/") {
        let name = input
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default();
        let is_ours = name.starts_with(b"libuzswap-") || name.starts_with(b"memfd:libuzswap-");
        assert_eq!(is_library(input), is_ours);
    }
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match text.parse::<Codec>() {
        Ok(codec) => {
            assert_eq!(codec.to_string().parse(), Ok(codec));
            assert_eq!(Codec::from_bits(codec.to_bits()), Some(codec));
        }
        Err(why) => assert!(!why.to_string().contains('\n')),
    }
    assert_eq!(Plan::parse(text), Plan::parse(text));
    sizes(text);
}

/// A size that is read is what its digits and its unit say; one that is written reads about the
/// same.
fn sizes(text: &str) {
    let read = text.parse::<Size>();
    if let Ok(plain) = text.parse::<u64>()
        && text.bytes().all(|byte| byte.is_ascii_digit())
    {
        assert_eq!(read, Ok(Size(plain)));
        for (shift, unit) in [(10, "K"), (20, "mb"), (30, "GiB"), (50, "P")] {
            let bytes = u64::try_from(u128::from(plain) << shift).ok();
            assert_eq!(
                format!("{text}{unit}").parse().ok(),
                bytes.map(Size),
                "{text}{unit}"
            );
        }
    }
    if let Ok(size) = read {
        let again = size.to_string().parse::<Size>();
        // The greatest of all is written as one byte more.
        let again = again.map_or(u64::MAX, |again| again.0);
        assert!(again.abs_diff(size.0) <= size.0 / 10, "{text}: {size}");
    }
}
