//! `uzswap run --metrics` answers over HTTP what `stat --prometheus` says, and goes with the run.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;

use uzswap_e2e::{Job, Scratch, find, skip};

const OPEN: &str = "Accept: application/openmetrics-text; version=1.0.0\r\n";

/// A port that nobody listens at.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("its number").port()
}

/// Sends a request; the answer's head and text.
fn ask(mut client: impl Read + Write, request: &str) -> (String, String) {
    client.write_all(request.as_bytes()).expect("it listens");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("it answers");
    let (head, text) = answer.split_once("\r\n\r\n").expect("head and text");
    (head.to_owned(), text.to_owned())
}

fn get(headers: &str) -> String {
    format!("GET /metrics HTTP/1.1\r\nHost: here\r\n{headers}\r\n")
}

/// Values that no one moves while the program sleeps, without their labels.
fn sample(text: &str, name: &str) -> String {
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{name}{{")));
    let line = line.unwrap_or_else(|| panic!("no {name}"));
    line.rsplit_once("} ").expect("a value").1.to_owned()
}

#[test]
fn a_scraper_reads_what_stat_says() {
    let scratch = Scratch::new();
    let port = free_port();
    let live = Job::idle(&scratch, 48)
        .ram_mib(32)
        .option("--metrics", format!("127.0.0.1:{port}"))
        .env("POD_NAME", "job-7f\"x")
        .env("POD_NAMESPACE", "batch")
        .flag("--background-reclaim=off")
        .start_until("idle\n");
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    let (head, text) = ask(connect(), &get(""));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("Content-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", text.len())),
        "{head}"
    );
    assert!(
        text.contains("pod=\"job-7f\\\"x\",namespace=\"batch\""),
        "{text}"
    );
    let said = live
        .uzswap("stat", &["--prometheus"])
        .expect_success("stat")
        .text();
    for name in [
        "uzswap_faults_total",
        "uzswap_resident_bytes",
        "uzswap_ram_limit_bytes",
    ] {
        assert_eq!(sample(&text, name), sample(&said, name), "{name}");
    }
    let (head, open) = ask(connect(), &get(OPEN));
    assert!(
        head.contains("Content-Type: application/openmetrics-text"),
        "{head}"
    );
    assert_eq!(
        sample(&open, "uzswap_faults_total"),
        sample(&said, "uzswap_faults_total")
    );
    assert!(open.ends_with("\n# EOF\n"));
    a_strict_client_reads(&open);
    // What is no request for metrics is refused, and a client that says nothing holds up others
    // for a moment only.
    let (head, _) = ask(connect(), "GET /etc/passwd HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    let silent = connect();
    let (head, text) = ask(connect(), "HEAD / HTTP/1.0\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && text.is_empty(),
        "{head}\n{text}"
    );
    drop(silent);
    let _ = live.end_by(libc::SIGTERM);
    assert!(
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err(),
        "it goes with the run"
    );
}

#[test]
fn a_socket_file_goes_with_the_run_and_a_leftover_is_replaced() {
    let scratch = Scratch::new();
    let path = scratch.join("metrics.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let live = Job::idle(&scratch, 8)
        .ram_mib(32)
        .option("--metrics", format!("unix:{}", path.display()))
        .start_until("idle\n");
    let (head, _) = ask(UnixStream::connect(&path).expect("it listens"), &get(""));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    // Another run may not take it away.
    let _ = Job::new("true")
        .option("--metrics", format!("unix:{}", path.display()))
        .managed()
        .expect_refused(
            125,
            &["cannot serve metrics at unix:", "choose another --metrics"],
        );
    let _ = live.end_by(libc::SIGTERM);
    assert!(!path.exists());
}

/// Prometheus' own parser of OpenMetrics, which takes nothing that the format forbids.
fn a_strict_client_reads(text: &str) {
    const READ: &str = "
import sys
try: from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
except ImportError: sys.exit(77)
assert len(list(read(open(sys.argv[1]).read()))) > 50
";
    let scratch = Scratch::new();
    let file = scratch.join("metrics");
    std::fs::write(&file, text).expect("a file");
    let mut python = Command::new(find("python3").expect("python3 is installed"));
    let read = python
        .args(["-c", READ])
        .arg(&file)
        .output()
        .expect("python3 starts");
    if read.status.code() == Some(77) {
        return skip("prometheus_client is not installed (package python3-prometheus-client)");
    }
    assert!(
        read.status.success(),
        "{}",
        String::from_utf8_lossy(&read.stderr)
    );
}
