//! *What*: the texts that come by the environment and the command line. What says where the group
//! is reads the same after it was written; a codec that is read is written so that it reads the
//! same; a plan of failures is refused or read.

use uzswap_compress::Codec;
use uzswap_group::environment::{MAX_FILE, Told};
use uzswap_group::library::is_library;
use uzswap_io::inject::Plan;

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
}
