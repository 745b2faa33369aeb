//! *What*: files of results and traces, as `uzswap report` reads them. What is read is drawn as a
//! page that runs nothing, whatever its texts say; what is not is refused with one line.

use uzswap_bench::report::{page, trace_page};
use uzswap_bench::results::Results;
use uzswap_bench::trace::Trace;

/// See the head.
pub fn draw_what_is_read(input: &[u8]) {
    let trace = std::str::from_utf8(input).map(Trace::parse);
    let pages = [
        trace
            .unwrap_or(Err("no text".into()))
            .map(|trace| trace_page(&trace)),
        Results::parse(input).map(|results| page(&results)),
    ];
    for page in pages {
        match page {
            Ok(page) => {
                assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
                assert!(!page.contains("<script"), "a page that runs something");
            }
            Err(why) => assert!(!why.contains('\n'), "{why}"),
        }
    }
}
