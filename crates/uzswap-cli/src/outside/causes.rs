//! *What*: what memory outside the account is, in words: the kinds of mappings of each program.
//!
//! *Invariants*: none. *Locking*: none. *Context*: `uzswap run`.

use crate::size::Size;

/// What a part of a process's memory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The brk heap.
    Heap,
    /// Stacks of its threads.
    Stack,
    /// Anonymous executable memory.
    Jit,
    /// Pages of a mapped file that the process has changed.
    File(String),
    /// Anonymous memory that the program gave a name.
    Named(String),
    /// Huge pages of hugetlbfs.
    Huge,
    /// The preload library's heap for what libc itself allocates.
    LibcHeap,
    /// Anonymous memory that a managed program mapped at fixed addresses.
    Fixed,
    /// Other anonymous memory.
    Anonymous,
    /// Shared memory: memory files, System V, tmpfs, `MAP_SHARED`.
    Shared,
    /// Page tables and kernel stacks.
    Tables,
    /// uzswap's handler stacks and what its processes share.
    Own,
}

impl Kind {
    /// It, of a program of this name.
    fn of(&self, program: &str) -> String {
        match self {
            Kind::Heap => format!("brk heap of {program}"),
            Kind::Stack => format!("stacks of {program}"),
            Kind::Jit => format!("executable memory (JIT code) of {program}"),
            Kind::File(file) => format!("private pages of {file} in {program}"),
            Kind::Named(name) => format!("memory named {name} of {program}"),
            Kind::Huge => format!("huge pages of {program}"),
            Kind::LibcHeap => format!("C library's own heap in {program}"),
            Kind::Fixed => format!("anonymous memory of {program} (mapped at fixed addresses)"),
            Kind::Anonymous => format!("anonymous memory of {program}"),
            Kind::Shared => format!("shared memory of {program}"),
            Kind::Tables => format!("page tables and kernel stacks of {program}"),
            Kind::Own => "uzswap's own tables and stacks".to_owned(),
        }
    }
}

/// A part of a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub kind: Kind,
    /// Bytes.
    pub bytes: u64,
}

/// A part of the run's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub what: String,
    /// Bytes.
    pub bytes: u64,
}

/// The causes of a run's memory outside the account, largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Causes(Vec<Cause>);

impl Causes {
    /// Adds a part of a process called `program`; equal ones of several processes add up.
    pub fn add(&mut self, program: &str, part: &Part) {
        let (what, bytes) = (part.kind.of(program), part.bytes);
        match self.0.iter_mut().find(|cause| cause.what == what) {
            Some(cause) => cause.bytes += bytes,
            None if bytes > 0 => self.0.push(Cause { what, bytes }),
            None => {}
        }
    }

    /// Puts the largest first.
    pub fn sort(&mut self) {
        self.0.sort_by_key(|cause| std::cmp::Reverse(cause.bytes));
    }

    /// The largest, in words: up to three, and no small ones.
    pub fn named(&self) -> String {
        const MAX_NAMED: usize = 3;
        const MIN_PERCENT: u64 = 5;
        let all: u64 = self.0.iter().map(|cause| cause.bytes).sum();
        let large = |cause: &&Cause| cause.bytes * 100 >= all * MIN_PERCENT;
        let named: Vec<String> = self
            .0
            .iter()
            .filter(large)
            .take(MAX_NAMED)
            .map(|cause| format!("{} {}", Size(cause.bytes), cause.what))
            .collect();
        named.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_named_and_equal_ones_add_up() {
        let mut causes = Causes::default();
        for (program, kind, mib) in [
            ("chromium", Kind::Fixed, 100),
            ("postgres", Kind::Shared, 40),
            ("chromium", Kind::Fixed, 200),
            ("sh", Kind::Heap, 1),
            ("sh", Kind::Stack, 0),
        ] {
            let bytes = mib << 20;
            causes.add(program, &Part { kind, bytes });
        }
        causes.sort();
        assert_eq!(
            causes.named(),
            "300 MiB anonymous memory of chromium (mapped at fixed addresses), \
             40 MiB shared memory of postgres"
        );
        assert_eq!(Causes::default().named(), "");
    }
}
