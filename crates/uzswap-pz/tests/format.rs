//! The format as in docs/pz-format.md, by objects written by hand, and an old object of each
//! version, which must stay readable.
#![allow(clippy::cast_possible_truncation, reason = "test data")]

use uzswap_pz::{BlockWorkspace, Corrupt, Level, PAGE, Workspace, compress, decompress};

type Page = [u8; PAGE];

fn decode(object: &[u8]) -> Result<Page, Corrupt> {
    let mut page = [0xee; PAGE];
    decompress(&mut Workspace::new(), object, &mut page).map(|()| page)
}

/// A plain object.
fn plain(tokens: &[u8], extras: &[u8], literals: &[u8]) -> Vec<u8> {
    let mut object = vec![0x00, 0x10];
    for stream in [tokens, extras, literals] {
        let count = u16::try_from(stream.len()).expect("a short stream");
        object.extend(count.to_le_bytes());
    }
    object.extend([tokens, extras, literals].concat());
    object
}

/// A token of kind, literals and match.
const fn token(kind: u8, nr_literals: u8, len: u8) -> u8 {
    kind << 6 | nr_literals << 4 | len
}

#[test]
fn each_kind_of_match() {
    let tokens = [
        token(2, 3, 4),  // 3 + 13 literals; distance 8, 4 + 4 bytes
        token(3, 1, 0),  // 1 literal; distance 5, 4 bytes
        token(1, 0, 0),  // distance 8 again, 4 bytes
        token(0, 0, 0),  // and again, 3 bytes
        token(0, 0, 15), // the rest but one byte: 3 + 15 + 4041
    ];
    let mut extras = vec![0, 13, 5, 0, 255];
    extras.extend(4041_u16.to_le_bytes());
    let object = plain(&tokens, &extras, b"0123456789abcdefXz");
    let page = decode(&object).expect("a page");
    assert_eq!(&page[..36], b"0123456789abcdef89abcdefXcdefdefXcde");
    assert!((29..PAGE - 1).all(|at| page[at] == page[at - 8]));
    assert_eq!(page[PAGE - 1], b'z');
}

/// In a block the distances reach farther, and the header is written another way.
#[test]
fn a_block_by_hand() {
    const LEN: usize = 40_000;
    let far = 30_000_u16;
    let object = |first: u16, distance: u16, rest: u16| -> Vec<u8> {
        // A byte, as far as the distance; then what was there, and one byte more.
        let tokens = [token(0, 1, 15), token(3, 3, 15)];
        let mut extras = vec![255];
        extras.extend((far - 4 - 18).to_le_bytes());
        extras.extend(distance.to_le_bytes());
        extras.extend([0, 255]);
        extras.extend(rest.to_le_bytes());
        let mut object = Vec::new();
        for word in [first, 0, 2, extras.len() as u16, 5] {
            object.extend(word.to_le_bytes());
        }
        object.extend(tokens);
        object.extend(extras);
        object.extend(b"abcdz");
        object
    };
    let decode = |object: &[u8]| {
        let mut block = vec![0xee; LEN];
        let mut workspace = Box::new(BlockWorkspace::new());
        decompress(&mut *workspace, object, &mut block).map(|()| block)
    };
    let rest = (LEN - usize::from(far) - 1 - 19) as u16;
    let block = decode(&object(0x2000, far, rest)).expect("a block");
    let at = usize::from(far);
    assert!(block[..at - 3].iter().all(|&b| b == b'a'));
    assert_eq!(block[at - 3..at + 2], *b"bcdaa");
    assert!(block[at..LEN - 1] == block[..LEN - 1 - at]);
    assert_eq!(block[LEN - 1], b'z');
    for (what, first, distance, rest) in [
        ("a page's version", 0x1000, far, rest),
        ("another version", 0x3000, far, rest),
        ("a match before the start", 0x2000, far + 1, rest),
        ("too short", 0x2000, far, rest - 1),
        ("too long", 0x2000, far, rest + 1),
    ] {
        assert_eq!(
            decode(&object(first, distance, rest)),
            Err(Corrupt),
            "{what}"
        );
    }
}

#[test]
fn what_is_no_object() {
    let good = plain(&[token(0, 1, 15)], &[255, 0xed, 0x0f], b"a");
    assert_eq!(decode(&good), Ok([b'a'; PAGE]));
    let bad: [(&str, Vec<u8>); 9] = [
        ("nothing", vec![]),
        ("less than a header", good[..7].to_vec()),
        ("a byte less", good[..good.len() - 1].to_vec()),
        ("a byte more", [&good[..], &[0]].concat()),
        ("another version", [&[0, 0x20], &good[2..]].concat()),
        ("a split without codes", [&[1, 0x10], &good[2..]].concat()),
        (
            "too short a page",
            plain(&[token(0, 1, 15)], &[255, 0xec, 0x0f], b"a"),
        ),
        (
            "too long a page",
            plain(&[token(0, 1, 15)], &[255, 0xee, 0x0f], b"a"),
        ),
        (
            "a match before the start",
            plain(&[token(3, 1, 15)], &[2, 0, 255, 0xec, 0x0f], b"a"),
        ),
    ];
    for (what, object) in bad {
        assert_eq!(decode(&object), Err(Corrupt), "{what}");
    }
    assert_eq!(
        decode(&plain(&[token(3, 1, 15)], &[0, 0, 255, 0xec, 0x0f], b"a")),
        Err(Corrupt),
        "distance zero"
    );
    assert_eq!(
        decode(&plain(&[token(0, 1, 15)], &[255, 0xed, 0x0f, 0], b"a")),
        Err(Corrupt),
        "an extra that nobody reads"
    );
}

/// `N` bytes of records.
fn records<const N: usize>() -> [u8; N] {
    std::array::from_fn(|i| {
        let record = i / 32 * 1000;
        let fields = [0x7f12_3456_0040, record as u64, 0];
        match i % 32 {
            24.. => b"widgets\0"[i % 8],
            at => fields[at / 8].to_le_bytes()[at % 8],
        }
    })
}

fn digits(object: &[u8]) -> String {
    object.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Objects of version 1 stay readable: this one, with all three streams coded, is from the time of
/// the version's making.
#[test]
fn an_old_object() {
    let page: Page = records();
    let object = bytes(include_str!("page_of_version_1.hex"));
    let mut now = [0; PAGE];
    let len = compress(&mut Workspace::new(), Level::Balanced, &page, &mut now).expect("fits");
    let digits = digits(&now[..len]);
    assert!(
        object.len() > 8 && [3, 5, 7].iter().all(|&at| object[at] >> 4 != 0),
        "no stream of it may be plain; today's: {digits}"
    );
    assert!(decode(&object) == Ok(page), "today's: {digits}");
}

/// And of version 2.
#[test]
fn an_old_block() {
    let block: [u8; 2 * PAGE] = records();
    let object = bytes(include_str!("block_of_version_2.hex"));
    let mut workspace = Box::new(BlockWorkspace::new());
    let mut now = [0; PAGE];
    let len = compress(&mut *workspace, Level::Balanced, &block, &mut now).expect("fits");
    let digits = digits(&now[..len]);
    assert!(
        object.len() > 10
            && [object[0] & 15, object[0] >> 4, object[1] & 15]
                .iter()
                .all(|&code| code != 0),
        "no stream of it may be plain; today's: {digits}"
    );
    let mut back = [0; 2 * PAGE];
    let got = decompress(&mut *workspace, &object, &mut back);
    assert!(got == Ok(()) && back == block, "today's: {digits}");
}

/// The lanes of a part meet exactly: with a byte more between them the page is not what it was.
#[test]
fn a_byte_between_the_lanes() {
    let object = bytes(include_str!("page_of_version_1.hex"));
    let page = decode(&object);
    assert!(page.is_ok());
    let split = usize::from(u16::from_le_bytes([object[0], object[1]]) & 0xfff);
    let step = if cfg!(miri) { 29 } else { 1 };
    for at in (8..=object.len()).step_by(step) {
        let mut longer = object.clone();
        longer.insert(at, 0);
        if at <= 8 + split {
            let word = u16::from_le_bytes([object[0], object[1]]) + 1;
            longer[..2].copy_from_slice(&word.to_le_bytes());
        }
        assert!(decode(&longer) != page, "at {at}");
    }
}

fn bytes(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> = digits.chars().filter_map(|c| c.to_digit(16)).collect();
    let bytes = digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8);
    bytes.collect()
}
