//! The program as vm-scalability's `usemem`: processes, threads, repetition, order.

use std::process::{Command, Output};

fn usemem(args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uzswap-usemem"))
        .args(args.split_whitespace())
        .output()
        .unwrap()
}

#[test]
fn each_process_and_all_together_report_throughput() {
    let output = usemem("--init-time -w -O -y -x -n 3 -r 2 4m");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3 * 2 + 1, "{text}");
    for process in lines[..6].chunks(2) {
        assert!(process[0].starts_with("8388608 bytes / "), "{text}");
        assert!(process[0].ends_with(" KB/s"), "{text}");
        assert!(process[1].ends_with(" usecs to allocate"), "{text}");
    }
    let all = "{\"tasks\":3,\"threads\":1,\"bytes\":8388608,";
    assert!(lines[6].starts_with(all), "{text}");
}

#[test]
fn random_order_threads_and_same_filled_pages_check_what_they_wrote() {
    for args in [
        "-R -r 4 -t 2 --touch-alloc 4m",
        "-R -r 4 -t 2 4m",
        "--same-filled -R -r 4 -n 2 4m",
        "--same-filled -r 3 4m",
    ] {
        let output = usemem(args);
        assert!(output.status.success(), "{args}: {output:?}");
    }
}

#[test]
fn wrong_arguments_end_with_status_2() {
    let output = usemem("-n 2 lots");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("lots: not a size"));
    let output = usemem("--mib 1 --corpus /proc/self/fdinfo");
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("holds no .pages files"), "{stderr}");
}
