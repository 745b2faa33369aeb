//! What a redis server is told and answers.
//!
//! *What*: requests as RESP writes them, and where an answer ends.
//! *Invariants*: none. *Locking*: none. *Context*: the suites `tail` and `remote`.

use anyhow::{Result, bail};

/// Appends a request of these words.
pub fn request(to: &mut Vec<u8>, words: &[&[u8]]) {
    to.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        to.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

/// The answer that `text` begins with, without its type, and how much of `text` it takes; `None`:
/// the rest of it has not come yet.
///
/// # Errors
/// If the server refused the request, or it is no answer to a request of ours.
pub fn answer(text: &[u8]) -> Result<Option<(&[u8], usize)>> {
    let Some(end) = text.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let (line, head) = (&text[..end], end + 2);
    match line.split_first() {
        Some((b'+', words)) => Ok(Some((words, head))),
        Some((b'$', digits)) => {
            let Some(len) = std::str::from_utf8(digits)
                .ok()
                .and_then(|d| d.parse().ok())
            else {
                bail!("the server has lost a value");
            };
            let len: usize = len;
            let value = text.get(head..head + len);
            Ok(value
                .filter(|_| text.len() >= head + len + 2)
                .map(|value| (value, head + len + 2)))
        }
        _ => bail!("the server answers {}", String::from_utf8_lossy(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_the_length_of_each_word() {
        let mut text = Vec::new();
        request(&mut text, &[b"GET", b"key:12"]);
        assert_eq!(text, b"*2\r\n$3\r\nGET\r\n$6\r\nkey:12\r\n");
    }

    #[test]
    fn answers_are_taken_one_by_one_once_they_are_whole() {
        let text = b"+OK\r\n$5\r\na\r\nbc\r\n+PONG\r\n";
        assert_eq!(answer(text).unwrap(), Some((&b"OK"[..], 5)));
        assert_eq!(answer(&text[5..]).unwrap(), Some((&b"a\r\nbc"[..], 11)));
        assert_eq!(answer(&text[16..]).unwrap(), Some((&b"PONG"[..], 7)));
        for cut in 5..16 {
            assert_eq!(answer(&text[5..cut]).unwrap(), None, "{cut}");
        }
    }

    #[test]
    fn what_was_refused_or_lost_is_an_error() {
        let why = |text: &[u8]| answer(text).unwrap_err().to_string();
        assert!(why(b"-OOM command not allowed\r\n").contains("OOM"));
        assert!(why(b"$-1\r\n").contains("lost"));
    }
}
