//! *What*: the group file, which every process of a run may write to, also one that has fewer
//! rights than the others. Whatever stands in it, the others' calls come back, reach nothing
//! outside it and panic nowhere: what is read, and what is changed by it.

use std::cell::RefCell;

use uzswap_group::group::{GROUP_LEN, Group, Identity, ProcessState, Text};
use uzswap_group::histogram::Histogram;
use uzswap_sync::node::{NR_NODES, Path};

use crate::bytes::Bytes;
use crate::fresh::Fresh;

thread_local! {
    static MEMORY: RefCell<Fresh> = RefCell::new(Fresh::new(GROUP_LEN));
}

/// See the head.
pub fn is_read_however_scribbled(input: &[u8]) {
    MEMORY.with_borrow_mut(|memory| {
        let start = memory.zeroed();
        let mut input = Bytes::new(input);
        scribble(start.cast(), &mut input);
        // SAFETY: aligned to a page, as long as a group, which is atomics alone: any bits will do.
        let group = unsafe { &*start.cast::<Group>() };
        read(group);
        change(group, &mut input);
        read(group);
    });
}

/// Writes words into the `GROUP_LEN` bytes at `group`.
fn scribble(group: *mut u64, input: &mut Bytes<'_>) {
    const WORDS: usize = GROUP_LEN / 8;
    let mut at = 0;
    for _ in 0..input.byte() {
        at = match input.byte() {
            0 => input.u32() as usize,
            // Most of what decides lies together.
            step => at + usize::from(step),
        } % WORDS;
        let word = match input.byte() {
            0 => input.u64(),
            1 => u64::MAX,
            2 => u64::from(input.u32()) << 32,
            small => small.into(),
        };
        // SAFETY: within the group's memory, of which there is no reference yet.
        unsafe { group.add(at).write(word) };
    }
}

/// All that others read.
fn read(group: &Group) {
    let _ = group.is_published();
    assert!((1..=NR_NODES).contains(&group.nr_nodes()));
    for run in group.runs() {
        let path = run.path.load();
        assert!(path.nodes().count() == path.depth() && path.last() < NR_NODES);
        let _ = group.ledger.look(path);
        let _ = group.children(path).count();
        for node in path.nodes() {
            let _ = group.limit_of(node);
        }
    }
    for name in &group.names {
        let mut buffer = [0; Text::LEN];
        assert!(name.get(&mut buffer).len() <= Text::LEN);
    }
    for process in group.used() {
        let _ = (
            group.run_of(process).supervisor.as_ptr(),
            group.is_foreign(process),
        );
        let _ = group.share_of(process).granted();
        let _ = (
            process.pid.load(ORDER),
            process.state.load(ORDER) == ProcessState::Free,
        );
        for bucket in 0..=process.fault_ticks.buckets.len() {
            let _ = Histogram::lower_bound(bucket);
        }
    }
    let knobs = &group.knobs;
    let _ = (knobs.codec(), knobs.shown_total(), knobs.denser_codecs());
    let swap = &group.config.swap;
    let _ = (swap.devices().count(), swap.nr_slots(), swap.used());
}

const ORDER: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

/// What a process of the run and its supervisor do.
fn change(group: &Group, input: &mut Bytes<'_>) {
    let (lives, run, pages) = (input.byte(), input.byte().into(), input.u64());
    let is_alive = |pid: u32| pid as u8 & lives != 0;
    let who = Identity {
        pid: 1 + u32::from(input.u16()),
        ppid: 1,
        namespace: 0,
        start_tsc: 1,
    };
    let own = group.claim(run, who, is_alive);
    if let Some(child) = group.reserve(own, who.pid) {
        child.born(who.pid + 1);
        child.give_back();
    }
    let path = group.run_of(own).path.load();
    let granted = group.begin_swapping(own, path, pages);
    assert!(granted <= pages);
    own.end_swapping(granted);
    group.expire_dead(who.pid, is_alive);
    group.reap(own, who.pid, is_alive, |_| {});
    if let Some(made) = group.add_node(path, "node") {
        assert!(made.last() < NR_NODES);
    }
    let has_ended = |run: &uzswap_group::group::Run| !is_alive(run.supervisor.load(ORDER));
    if let Some(begun) = group.begin_run(Path::ROOT, who.pid, 1, has_ended) {
        group.end_run(begun);
    }
}
