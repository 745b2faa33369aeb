use super::tree::tests::FakeProc;
use super::*;
use crate::group_view::text_of;
use crate::group_view::totals::tests::{group, set, start};

const FORKED: u32 = 0x40;
const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

/// A run with supervisor 7, which has nothing, under a limit of 64 MiB.
fn run<'a>(proc: &FakeProc, group: &'a Group) -> Outside<'a> {
    group.knobs.ram.store(64 * MIB, Relaxed);
    proc.add(7, 1, 0, [0, 0]);
    Outside {
        proc: proc.0.clone(),
        supervisor: 7,
        ..Outside::new(group, 0)
    }
}

fn smaps(proc: &FakeProc, pid: u32, arena: u64, outside: u64) {
    let text = format!(
        "100000000000-110000000000 rw-p 00000000 00:00 0\nRss: {arena} kB\nPss: {arena} kB\n\
         Anonymous: {arena} kB\nVmFlags: rd\n\
         7f0000000000-7f1000000000 rw-p 00000000 00:00 0 [heap]\nRss: {outside} kB\n\
         Pss: {outside} kB\nAnonymous: {outside} kB\nVmFlags: rd\n"
    );
    proc.write(&format!("{pid}/smaps"), &text);
}

fn anonymous(group: &Group) -> u64 {
    group.runs[0].outside.anonymous.load(Relaxed) >> 10
}

#[test]
fn an_unmanaged_process_counts_as_it_is_and_the_peak_stays() {
    let (proc, group) = (FakeProc::new("plain"), group());
    let mut outside = run(&proc, &group);
    proc.add(8, 7, 0, [30_000, 0]);
    outside.look(SECOND);
    assert_eq!(anonymous(&group), 30_000);
    // Two kernel stacks and page tables.
    assert_eq!(group.runs[0].outside.tables.load(Relaxed), 2 * (24 << 10));
    proc.remove(8);
    outside.look(2 * SECOND);
    assert_eq!(anonymous(&group), 0);
    let peak = group.runs[0].unmanaged_peak.load(Relaxed);
    assert_eq!(peak, (30_000 << 10) + 2 * (24 << 10));
    assert_eq!(
        outside.causes().named(),
        "29.3 MiB anonymous memory of a) b"
    );
    assert_eq!(text_of(&group.runs[0].outside.most_name), "a) b");
}

#[test]
fn of_a_managed_process_counts_what_its_mappings_say() {
    let (proc, group) = (FakeProc::new("managed"), group());
    let mut outside = run(&proc, &group);
    let record = start(&group, 8);
    set(record, "resident", 50_000 << 10);
    // The engine has charged 100 KiB that it has not touched.
    set(record, "metadata", 100 << 10);
    proc.add(8, 7, 0, [53_000, 0]);
    smaps(&proc, 8, 50_000, 3000);
    outside.look(SECOND);
    assert_eq!(anonymous(&group), 3000);
    assert_eq!(record.unmanaged.load(Relaxed) >> 10, 3000 + 24);
    // The arena grows, which is the engine's business.
    set(record, "resident", 60_000 << 10);
    proc.add(8, 7, 0, [63_000, 0]);
    proc.write("8/smaps", "not to be read\n");
    outside.look(2 * SECOND);
    assert_eq!(anonymous(&group), 3000);
    // More outside: it is weighed again.
    proc.add(8, 7, 0, [73_000, 0]);
    smaps(&proc, 8, 60_000, 13_000);
    outside.look(3 * SECOND);
    assert_eq!(anonymous(&group), 13_000);
}

#[test]
fn without_time_to_weigh_what_has_grown_is_added() {
    let (proc, group) = (FakeProc::new("hurry"), group());
    let mut outside = run(&proc, &group);
    start(&group, 8);
    proc.add(8, 7, 0, [3000, 0]);
    smaps(&proc, 8, 0, 2500);
    outside.look(SECOND);
    assert_eq!(anonymous(&group), 2500);
    outside.pace.weighed(1000 * SECOND);
    proc.add(8, 7, 0, [9000, 0]);
    outside.look(2 * SECOND);
    assert_eq!(anonymous(&group), 2500, "perhaps a page on its way");
    outside.look(3 * SECOND);
    assert_eq!(anonymous(&group), 8500);
}

#[test]
fn memory_shared_by_fork_counts_once() {
    let (proc, group) = (FakeProc::new("fork"), group());
    let mut outside = run(&proc, &group);
    proc.add(8, 7, 0, [40_000, 0]);
    proc.add(9, 8, FORKED, [40_000, 0]);
    smaps(&proc, 8, 0, 20_000);
    smaps(&proc, 9, 0, 20_000);
    outside.look(SECOND);
    assert_eq!(anonymous(&group), 40_000);
    // The parent ends: all is the child's.
    proc.remove(8);
    proc.add(9, 7, FORKED, [40_000, 0]);
    smaps(&proc, 9, 0, 40_000);
    outside.look(2 * SECOND);
    assert_eq!(anonymous(&group), 40_000);
    // exec makes it a process like any other.
    proc.add(9, 7, 0, [1000, 0]);
    outside.look(3 * SECOND);
    assert_eq!(anonymous(&group), 1000);
}

#[test]
fn who_works_in_anothers_memory_has_none() {
    let proc = |pid, parent, name: &str, virt, blocked| Proc {
        pid,
        parent,
        name: name.to_owned(),
        virt,
        blocked,
        forked: pid > 8,
        anonymous: 100,
        ..Proc::default()
    };
    let all = [
        proc(8, 7, "make", 900, true),
        proc(9, 8, "make", 900, false),
        proc(10, 8, "make", 901, false),
        proc(11, 7, RECLAIMER, 900, false),
    ];
    let owned = |share: fn(u32, u32) -> Option<bool>| {
        let mut all = all.clone();
        disown(&mut all, share);
        all.map(|proc| proc.anonymous)
    };
    assert_eq!(owned(|_, _| Some(true)), [100, 0, 100, 0]);
    assert_eq!(owned(|_, _| Some(false)), [100, 100, 100, 0]);
    assert_eq!(owned(|_, _| None), [100, 0, 100, 0], "the parent waits");
}

#[test]
fn the_limit_is_exceeded_when_two_looks_say_so() {
    let (proc, group) = (FakeProc::new("over"), group());
    let mut outside = run(&proc, &group);
    proc.add(8, 7, 0, [70 << 10, 0]);
    outside.look(SECOND);
    assert_eq!(outside.over_limit(), None);
    outside.look(2 * SECOND);
    assert!(
        outside
            .over_limit()
            .is_some_and(|over| over.bytes > 70 * MIB)
    );
    proc.add(8, 7, 0, [60 << 10, 0]);
    outside.look(3 * SECOND);
    assert_eq!(outside.over_limit(), None);
}

#[test]
fn copies_of_memory_shared_by_fork_are_found() {
    let (proc, group) = (FakeProc::new("copies"), group());
    let mut outside = run(&proc, &group);
    for (pid, parent, flags) in [(8, 7, 0), (9, 8, FORKED)] {
        proc.add(pid, parent, flags, [40_000, 0]);
        smaps(&proc, pid, 0, 20_000);
    }
    outside.look(SECOND);
    // The child has changed half of it: a fault a page, and no more resident than before.
    let stat = std::fs::read_to_string(proc.0.join("9/stat")).unwrap();
    proc.write("9/stat", &stat.replace(" -1 64 0 ", " -1 64 5000 "));
    for pid in [8, 9] {
        smaps(&proc, pid, 0, 30_000);
    }
    outside.look(2 * SECOND);
    assert_eq!(anonymous(&group), 60_000);
}

/// The time is up after the first of them.
#[test]
fn a_family_is_weighed_as_a_whole() {
    let (proc, group) = (FakeProc::new("whole"), group());
    let mut outside = run(&proc, &group);
    proc.add(8, 7, 0, [40_000, 0]);
    for pid in 9..30 {
        proc.add(pid, 8, FORKED, [40_000, 0]);
    }
    for pid in 8..30 {
        smaps(&proc, pid, 0, 1000);
    }
    // As much as it takes to weigh one.
    outside.pace.weighed(Duration::from_micros(5000 + 1000 - 1));
    outside.look(SECOND);
    assert_eq!(anonymous(&group), 22_000);
}

#[test]
fn a_family_that_is_not_weighed_yet_counts_once_with_what_it_has_grown_by() {
    let (proc, group) = (FakeProc::new("young"), group());
    let mut outside = run(&proc, &group);
    outside.pace.weighed(1000 * SECOND);
    proc.add(8, 7, 0, [20_000, 0]);
    outside.look(SECOND);
    assert_eq!(anonymous(&group), 20_000);
    for pid in [9, 10] {
        proc.add(pid, 8, FORKED, [20_000, 0]);
    }
    outside.look(2 * SECOND);
    assert_eq!(anonymous(&group), 20_000, "the parent's, which forked");
    proc.add(9, 8, FORKED, [25_000, 0]);
    outside.look(3 * SECOND);
    outside.look(4 * SECOND);
    assert_eq!(anonymous(&group), 25_000, "more of one child");
    // The parent ends. Its child has what all had, and the other what it has grown by.
    proc.remove(8);
    proc.add(9, 7, FORKED, [20_000, 0]);
    proc.add(10, 7, FORKED, [23_000, 0]);
    outside.look(5 * SECOND);
    outside.look(6 * SECOND);
    assert_eq!(anonymous(&group), 23_000);
}

#[test]
fn a_family_that_has_grown_since_it_was_weighed_counts_with_that() {
    let (proc, group) = (FakeProc::new("grown"), group());
    let mut outside = run(&proc, &group);
    for (pid, parent, flags) in [(8, 7, 0), (9, 8, FORKED)] {
        proc.add(pid, parent, flags, [20_000, 0]);
        smaps(&proc, pid, 0, 10_000);
    }
    outside.look(SECOND);
    assert_eq!(anonymous(&group), 20_000);
    outside.pace.weighed(1000 * SECOND);
    proc.add(9, 8, FORKED, [26_000, 0]);
    outside.look(2 * SECOND);
    outside.look(3 * SECOND);
    assert_eq!(anonymous(&group), 26_000);
}

/// As much is found as may have grown.
#[test]
fn the_time_to_measure_grows_with_what_the_program_uses() {
    let (proc, group) = (FakeProc::new("busy"), group());
    let mut outside = run(&proc, &group);
    proc.add(8, 7, 0, [20_000, 0]);
    outside.look(SECOND);
    assert_eq!(outside.cpu, SECOND / 2);
    outside.look(2 * SECOND);
    assert_eq!(outside.cpu, SECOND / 2, "it has used no more");
    proc.add(9, 8, FORKED, [20_000, 0]);
    outside.look(3 * SECOND);
    assert_eq!(outside.cpu, SECOND);
}
