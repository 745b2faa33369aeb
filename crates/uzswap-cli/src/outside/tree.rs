//! *What*: the processes of a run and what `/proc/PID/stat` and `/proc/PID/status` say of each.
//!
//! *Invariants*: parsing is apart from reading. A process that ends while it is read is left out.
//! *Locking*: none. *Context*: the supervisor's only thread.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Bytes of a thread's stack in the kernel, on x86-64.
const KERNEL_STACK: u64 = 16 << 10;
/// The unit of processor time in `stat`, on every machine that we run on.
const TICK: Duration = Duration::from_millis(10);

/// A process at one moment. Sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proc {
    pub pid: u32,
    pub parent: u32,
    pub name: String,
    /// Its number in its own pid namespace.
    pub own_pid: u32,
    /// Whether that namespace is another one than ours.
    pub nested: bool,
    /// When it started, and where its program and stack begin: what exec changes.
    pub image: [u64; 3],
    /// Whether it still runs the program, and shares the memory, that it was forked with.
    pub forked: bool,
    /// Whether it waits in the kernel as a parent does for its vfork child.
    pub blocked: bool,
    /// Page faults that needed no device.
    pub faults: u64,
    /// Processor time that it has used.
    pub cpu: Duration,
    /// Address space.
    pub virt: u64,
    pub anonymous: u64,
    pub shared: u64,
    pub huge: u64,
    pub page_tables: u64,
    pub threads: u64,
}

impl Proc {
    /// Page tables and kernel stacks.
    pub fn tables(&self) -> u64 {
        self.page_tables + self.threads * KERNEL_STACK
    }

    /// Forgets the memory, which is another process's: only the kernel stacks are its own.
    pub fn owns_no_memory(&mut self) {
        (self.anonymous, self.shared, self.huge) = (0, 0, 0);
        self.page_tables = 0;
    }

    /// What exec changes and fork keeps: the same in processes that may share memory by fork.
    pub fn family(&self) -> [u64; 2] {
        let [_, program, stack] = self.image;
        [program, stack]
    }

    pub fn has_threads(&self) -> bool {
        self.threads > 1
    }

    /// The process of these two files; none for one that has ended.
    fn parse(stat: &str, status: &str) -> Option<Self> {
        // From linux/sched.h: forked, but has not called exec.
        const PF_FORKNOEXEC: u64 = 0x40;
        let (pid, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |n: usize| fields.get(n)?.parse::<u64>().ok();
        let pid = pid.parse().ok()?;
        let mut proc = Proc {
            pid,
            parent: u32::try_from(field(1)?).ok()?,
            name: name.chars().filter(|c| !c.is_control()).collect(),
            own_pid: pid,
            image: [field(19)?, field(23)?, field(25)?],
            forked: field(6)? & PF_FORKNOEXEC != 0,
            blocked: fields.first() == Some(&"D"),
            faults: field(7)?,
            cpu: TICK * u32::try_from(field(11)? + field(12)?).unwrap_or(u32::MAX),
            virt: field(20)?,
            threads: field(17)?,
            ..Proc::default()
        };
        for line in status.lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let kib = || kib(value);
            match key {
                "RssAnon" => proc.anonymous = kib(),
                "RssShmem" => proc.shared = kib(),
                "VmPTE" => proc.page_tables = kib(),
                "HugetlbPages" => proc.huge = kib(),
                "NSpid" => {
                    let mut numbers = value.split_ascii_whitespace();
                    proc.own_pid = numbers.next_back()?.parse().ok()?;
                    proc.nested = numbers.next().is_some();
                }
                _ => {}
            }
        }
        Some(proc)
    }
}

/// The bytes of ` 12 kB`; 0 for anything else.
pub fn kib(value: &str) -> u64 {
    let number = value.trim().strip_suffix("kB").unwrap_or("").trim_end();
    number.parse::<u64>().map_or(0, |kib| kib << 10)
}

/// Process `top` and its descendants. `proc` is `/proc` except in tests.
pub fn look(proc: &Path, top: u32) -> Vec<Proc> {
    let pids = descendants(proc, top);
    let read = |pid: &u32| {
        let dir = proc.join(pid.to_string());
        let stat = fs::read_to_string(dir.join("stat")).ok()?;
        let status = fs::read(dir.join("status")).ok()?;
        Proc::parse(&stat, &String::from_utf8_lossy(&status))
    };
    pids.iter().filter_map(read).collect()
}

/// Process `top` and its descendants by the kernel's lists of children, or, where it keeps none, by
/// the parent that each process names.
fn descendants(proc: &Path, top: u32) -> Vec<u32> {
    let has_lists = proc.join(format!("{top}/task/{top}/children")).exists();
    let by_parent = (!has_lists).then(|| children_by_parent(proc));
    let children = |parent: u32| match &by_parent {
        Some(all) => all.get(&parent).cloned().unwrap_or_default(),
        None => listed_children(proc, parent),
    };
    let mut all = vec![top];
    let mut next = 0;
    while let Some(parent) = all.get(next) {
        next += 1;
        all.extend(children(*parent));
    }
    all
}

/// The children of all threads of process `parent`, as the kernel lists them.
fn listed_children(proc: &Path, parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(proc.join(format!("{parent}/task")));
    let threads = threads.into_iter().flatten().flatten();
    let lists = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let parse = |list: String| {
        let pids = list.split_ascii_whitespace();
        pids.filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
    };
    lists.flat_map(parse).collect()
}

/// The children of every process on the machine.
fn children_by_parent(proc: &Path) -> HashMap<u32, Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|pid| pid.parse().ok());
        let stat = fs::read_to_string(entry.path().join("stat")).ok();
        if let (Some(pid), Some(parent)) = (pid, stat.as_deref().and_then(parent_in)) {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

fn parent_in(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// Where the threads of process `pid` have their stacks: the stack pointers of those that wait in a
/// system call. Empty if the kernel does not show them.
pub fn stack_pointers(proc: &Path, pid: u32) -> Vec<u64> {
    // They only name a mapping, so that a few of very many do.
    const MAX_THREADS: usize = 64;
    let threads = fs::read_dir(proc.join(format!("{pid}/task")));
    let threads = threads.into_iter().flatten().flatten().take(MAX_THREADS);
    let calls = threads.filter_map(|thread| fs::read_to_string(thread.path().join("syscall")).ok());
    calls.filter_map(|call| stack_pointer_in(&call)).collect()
}

/// `NUMBER ARGUMENT… STACK-POINTER PROGRAM-COUNTER`, or `running`.
fn stack_pointer_in(call: &str) -> Option<u64> {
    let mut fields = call.split_ascii_whitespace().rev();
    let hex = fields.nth(1)?.strip_prefix("0x")?;
    u64::from_str_radix(hex, 16).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A `/proc` of a test's own.
    pub struct FakeProc(pub PathBuf);

    impl FakeProc {
        pub fn new(name: &str) -> Self {
            let dir = format!("uzswap-outside-{name}-{}", std::process::id());
            FakeProc(std::env::temp_dir().join(dir))
        }

        pub fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// A process with `anonymous` and `shared` KiB, 8 KiB of page tables and one thread.
        pub fn add(&self, pid: u32, parent: u32, flags: u32, [anonymous, shared]: [u64; 2]) {
            let stat = format!(
                "{pid} (a) b) S {parent} 1 1 0 -1 {flags} 0 0 0 0 30 20 0 0 20 0 1 0 77 {} 9 9 4096 \
                 8192 {} 0 0\n",
                u64::from(pid) << 20,
                // The supervisor runs another program than all others.
                u8::from(parent > 1)
            );
            let status = format!(
                "Name:\ta) b\nNSpid:\t{pid}\nRssAnon:\t{anonymous} kB\nRssFile:\t5 kB\n\
                 RssShmem:\t{shared} kB\nVmPTE:\t8 kB\nHugetlbPages:\t0 kB\n"
            );
            self.write(&format!("{pid}/stat"), &stat);
            self.write(&format!("{pid}/status"), &status);
        }

        pub fn remove(&self, pid: u32) {
            fs::remove_dir_all(self.0.join(pid.to_string())).unwrap();
        }
    }

    impl Drop for FakeProc {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_process_is_what_its_files_say() {
        let proc = FakeProc::new("one");
        proc.add(7, 3, 0x40, [100, 20]);
        let found = look(&proc.0, 7);
        let [it] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!((it.pid, it.parent, it.name.as_str()), (7, 3, "a) b"));
        assert_eq!((it.anonymous, it.shared), (100 << 10, 20 << 10));
        assert_eq!(it.tables(), (8 << 10) + KERNEL_STACK);
        assert!(it.forked && !it.nested && !it.blocked);
        assert_eq!(it.cpu, Duration::from_millis(500));
    }

    #[test]
    fn the_tree_is_the_same_by_children_and_by_parents() {
        let proc = FakeProc::new("tree");
        for (pid, parent) in [(7, 1), (8, 7), (9, 8), (10, 7), (11, 1)] {
            proc.add(pid, parent, 0, [0, 0]);
        }
        let pids = || {
            let mut pids: Vec<_> = look(&proc.0, 7).iter().map(|p| p.pid).collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(pids(), [7, 8, 9, 10], "by parents");
        // Process 8 has a thread 12 that forked process 9; 13 has ended meanwhile.
        proc.write("7/task/7/children", "8 10 13 ");
        proc.write("8/task/8/children", "");
        proc.write("8/task/12/children", "9");
        assert_eq!(pids(), [7, 8, 9, 10], "by children");
    }

    #[test]
    fn a_nested_namespace_and_a_zombie() {
        let stat = "9 (x) Z 7 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0 9 0 0 0 0";
        let zombie = Proc::parse(stat, "Name:\tx\nNSpid:\t9\t2\n").unwrap();
        assert!(zombie.nested);
        assert_eq!((zombie.own_pid, zombie.anonymous), (2, 0));
        assert_eq!(Proc::parse("", ""), None);
    }

    #[test]
    fn a_waiting_thread_shows_its_stack() {
        let call = "202 0x7f1 0x189 0x0 0x0 0x0 0xffffffff 0x7fd812345678 0x7fd812300000\n";
        assert_eq!(stack_pointer_in(call), Some(0x7fd8_1234_5678));
        assert_eq!(stack_pointer_in("running\n"), None);
    }
}
