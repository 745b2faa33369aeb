//! The format as docs/pz-format.md tells it, on objects written by hand, and one of each code that must stay readable.

use uzswap_pz::{Corrupt, Level, PAGE, Workspace, compress, decompress};

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

/// Kind, literals and match as they stand in a token.
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

/// Objects of version 1 stay readable: this one, of all three streams coded, was written when the version was made.
#[test]
fn an_old_object() {
    let page: Page = std::array::from_fn(|i| {
        let record = i / 32 * 1000;
        let fields = [0x7f12_3456_0040, record as u64, 0];
        match i % 32 {
            24.. => b"widgets\0"[i % 8],
            at => fields[at / 8].to_le_bytes()[at % 8],
        }
    });
    let object = old_object();
    let mut now = [0; PAGE];
    let len = compress(&mut Workspace::new(), Level::Balanced, &page, &mut now).expect("fits");
    let digits: String = now[..len]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(
        object.len() > 8 && [3, 5, 7].iter().all(|&at| object[at] >> 4 != 0),
        "no stream of it may be plain; today's: {digits}"
    );
    assert!(decode(&object) == Ok(page), "today's: {digits}");
}

/// The lanes of a part meet exactly: with a byte more between them the page is not what it was.
#[test]
fn a_byte_between_the_lanes() {
    let object = old_object();
    let page = decode(&object);
    assert!(page.is_ok());
    let split = usize::from(u16::from_le_bytes([object[0], object[1]]) & 0xfff);
    for at in 8..=object.len() {
        let mut longer = object.clone();
        longer.insert(at, 0);
        if at <= 8 + split {
            let word = u16::from_le_bytes([object[0], object[1]]) + 1;
            longer[..2].copy_from_slice(&word.to_le_bytes());
        }
        assert!(decode(&longer) != page, "at {at}");
    }
}

fn old_object() -> Vec<u8> {
    OLD.as_bytes()
        .chunks(2)
        .map(|digits| {
            let digits = std::str::from_utf8(digits).expect("hexadecimal digits");
            u8::from_str_radix(digits, 16).expect("hexadecimal digits")
        })
        .collect()
}

const OLD: &str = "\
    c210815083300e5107303333333333333333333333333333339bbbbbbbbbbbbbbbbbb8bbbbbbbbbbbb3baa935910583d\
    ac5144db988eddfb0d19959239653a67309af87d47cf5cbef5f0f9dbcf9e1f7fad068dc26f33e928cc61d6abe592d5a0\
    51f86d261d8539cc7ab51c7c9443bb6dcaf6763fec769b35d2de633f9c9b498e86039ee76c7db2d26dd66a55ec121918\
    27c268e168b8459e76090c8c13e13470b45c22cf3b7cf4a2877777777777777727bbbbbbbbbbbbbbbab3333333333333\
    3333333333333333338fcccccccccccccccccccccccccccccccc707777777777777777777777777777771b0113a16aed\
    facd5a47c777ed3d68f8386d76e1ec05cbd76dd97df0c4f96b771fbf7a5f5af15bc6b308172d1c4df8042343829d6711\
    2e5a389af0094686040cb1f37d3dee378ba9f0e7b6dfae568b39b4ee6261391e0f52149057341b42d564972d5eb30e61\
    47499b7e14683564b96af598730a3a4cdbf0a341ab2569a763dddddddddddddddddddddddddddddddd99999999999999\
    86cccccccccccccccc";
