//! Stories of `--swap`, told on directories and files of their own; those of block devices need
//! root, mkswap and a loop device.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uzswap_io::device::Fd;
use uzswap_io::{Device, HEADER_SLOTS, SLOT};

use super::shared::SwapGroup;
use super::*;
use crate::group_file::GroupFile;
use crate::group_file::tests::alone;
use uzswap_swap::area::{HEADER, MIN_LEN};
use uzswap_swap::{DEFAULT_DIR, disk};

const MIB: u64 = 1 << 20;

/// Held by the stories that open areas: a process that one of them starts has the descriptors of
/// the others, and so their locks, until it executes its program.
static ALONE: Mutex<()> = Mutex::new(());

/// A directory on a disk, removed with all that is in it.
struct Dir(
    PathBuf,
    #[expect(dead_code, reason = "held")] MutexGuard<'static, ()>,
);

impl Dir {
    /// None, and a line that says so, where there is none on a disk.
    fn new(name: &str) -> Option<Dir> {
        let dir = Path::new("/var/tmp").join(format!("uzswap-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = Dir(dir, alone);
        let file_system = disk::FileSystem::of(&fs::File::open(&dir.0).unwrap()).unwrap();
        if file_system.in_memory().is_some() || file_system.free < 64 * MIB {
            eprintln!("SKIPPED: /var/tmp is not on a disk with 64 MiB free");
            return None;
        }
        Some(dir)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn limits(max: u64) -> Limits {
    Limits {
        max: Some(max),
        file_size: u64::MAX,
        promised: Vec::new(),
    }
}

fn one(place: Place) -> [Swap; 1] {
    [Swap {
        place,
        priority: None,
    }]
}

fn path(path: &Path) -> [Swap; 1] {
    one(Place::Path(path.to_owned()))
}

/// What `auto` stands for where it must not be used.
fn nowhere() -> Auto {
    Auto::Default("/nowhere".into())
}

/// The area that is chosen without a word.
fn area(swap: &[Swap], max: u64) -> SwapArea {
    let mut choice = choose_from(swap, &nowhere(), limits(max)).expect("chosen");
    assert_eq!(choice.notes, [""; 0]);
    choice.areas.pop().expect("an area")
}

fn refusal(swap: &[Swap]) -> String {
    choose_from(swap, &nowhere(), limits(8 * MIB))
        .unwrap_err()
        .to_string()
}

/// Writes and reads the first and the last slot.
fn use_it(area: &SwapArea) {
    #[repr(align(4096))]
    struct Slot([u8; SLOT]);
    let device = Device::<Fd>::new(area.file.as_raw_fd(), area.nr_slots).expect("a device");
    for (slot, byte) in [(0, 1), (area.nr_slots - 1, 2)] {
        device
            .write_at(slot, &Slot([byte; SLOT]).0)
            .expect("written");
        let mut back = Slot([0; SLOT]);
        device.read_at(slot, &mut back.0).expect("read");
        assert!(back.0.iter().all(|&b| b == byte));
    }
    device.discard(0, area.nr_slots).expect("discarded");
}

#[test]
fn a_directory_gets_a_private_file_without_a_name() {
    let Some(dir) = Dir::new("unnamed") else {
        return;
    };
    let area = area(&path(&dir.0), 8 * MIB);
    assert!(dir.is_empty());
    let meta = area.file.metadata().unwrap();
    assert_eq!((meta.nlink(), meta.mode() & 0o777), (0, 0o600));
    assert_eq!(area.nr_slots, 8 * MIB / SLOT as u64);
    use_it(&area);
    assert!(area.file.metadata().unwrap().blocks() * 512 < MIB, "sparse");
    assert_eq!(area.path, dir.0);
    assert_eq!(
        area.rotational,
        disk::is_rotational(Path::new("/sys"), meta.dev())
    );
    // The way for file systems without O_TMPFILE, when another run was killed on it.
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    dir.file(&format!(".uzswap-{}-0", ended.id()), b"");
    let removed = file::removed(&dir.0).unwrap();
    assert_eq!(removed.metadata().unwrap().nlink(), 0);
    assert!(dir.is_empty());
    let other = dir.file(&format!(".uzswap-{}-0", ended.id()), b"somebody's");
    let living = dir.file(&format!(".uzswap-{}-0", std::process::id()), b"");
    file::removed(&dir.0).unwrap();
    assert!(other.exists() && living.exists());
}

#[test]
fn without_a_maximum_half_of_the_free_disk_at_most() {
    let Some(dir) = Dir::new("half") else { return };
    let free = disk::FileSystem::of(&fs::File::open(&dir.0).unwrap())
        .unwrap()
        .free;
    let limits = Limits {
        max: None,
        file_size: u64::MAX,
        promised: Vec::new(),
    };
    let here = Auto::Default(dir.0.clone());
    let auto = one(Place::Auto);
    let choice = choose_from(&auto, &here, limits.clone()).unwrap();
    let bytes = choice.areas[0].nr_slots * SLOT as u64;
    // Others write to the same disk meanwhile.
    assert!(
        bytes <= free / 2 + 64 * MIB && bytes >= (free / 4).min(1 << 40),
        "{bytes} of {free}"
    );
    // Of one disk, not for each that is on it.
    drop(choice);
    let twice = [auto.clone(), path(&dir.0)].concat();
    match choose_from(&twice, &here, limits) {
        Ok(choice) => {
            let bytes = choice.areas.iter().map(|area| area.nr_slots * SLOT as u64);
            let bytes: u64 = bytes.sum();
            assert!(bytes <= free / 2 + 64 * MIB, "{bytes} of {free}");
        }
        Err(reason) => assert!(reason.to_string().contains("--swap-max"), "{reason}"),
    }
}

#[test]
fn several_are_opened_each_for_itself() {
    let Some(dir) = Dir::new("several") else {
        return;
    };
    let (first, second) = (dir.file("first", b""), dir.file("second", b""));
    let mut swaps = [path(&first), path(&dir.0), path(&second), path(&dir.0)].concat();
    swaps[2].priority = Some(7);
    swaps[3].priority = Some(7);
    let choice = choose_from(&swaps, &nowhere(), limits(8 * MIB)).unwrap();
    assert_eq!(choice.notes, [""; 0]);
    let found = choice.areas.iter().map(|area| (&*area.path, area.priority));
    let expected = [(&first, -1), (&dir.0, -2), (&second, 7), (&dir.0, 7)];
    assert!(found.eq(expected.map(|(path, priority)| (&**path, priority))));
    choice.areas.iter().for_each(use_it);

    // As they are filled: by priority, then as they were named; and no two have a number in common.
    let _alone = alone();
    let group = GroupFile::create().unwrap();
    let swap = SwapGroup::new(choice.areas, true, &group.config.swap).unwrap();
    let mut end = None;
    for (device, expected) in group.config.swap.devices().zip([7, 7, -1, -2]) {
        assert_eq!(device.priority.load(Relaxed), expected);
        let first = device.first.load(Relaxed);
        assert!(end.is_none_or(|end| first > end), "{first} after {end:?}");
        end = Some(first + device.nr_slots.load(Relaxed));
    }
    assert_eq!(group.config.swap.nr_slots(), 4 * 8 * MIB / SLOT as u64);
    drop(swap);

    let none = one(Place::None);
    for (wrong, word) in [
        ([path(&first), path(&first)].concat(), "twice"),
        ([none.clone(), path(&first)].concat(), "alone"),
        (vec![none[0].clone(); 2], "alone"),
        (vec![path(&dir.0)[0].clone(); 9], "9 times"),
    ] {
        let line = refusal(&wrong);
        assert!(line.contains(word), "{line}");
    }
}

#[test]
fn a_place_that_was_named_is_used_or_the_run_ends() {
    let Some(dir) = Dir::new("named") else { return };
    // Containers often have /sys read-only.
    let mut places: Vec<(PathBuf, &[&str])> = vec![
        (dir.0.join("missing"), &["no such directory or file"]),
        (dir.file("file", b"x").join("below"), &["not a directory"]),
        ("/sys".into(), &["not writable", "read-only"]),
        ("/dev/null".into(), &["neither a directory nor a file"]),
        ("nosuch://host/0".into(), &["swap to 'nosuch' is not known"]),
    ];
    let shm = Path::new("/dev/shm");
    let on = fs::File::open(shm).and_then(|shm| disk::FileSystem::of(&shm));
    if on.is_ok_and(|on| on.in_memory() == Some("tmpfs")) {
        places.push((shm.to_owned(), &["tmpfs, which is memory"]));
    } else {
        eprintln!("SKIPPED the tmpfs part: /dev/shm is none");
    }
    let usable = Auto::Default(dir.0.clone());
    for (place, reasons) in places {
        let says_why = |line: &str, how: &str| {
            assert!(
                line.starts_with(&format!("{how}{}: ", place.display())),
                "{line}"
            );
            assert!(reasons.iter().any(|reason| line.contains(reason)), "{line}");
            assert!(!line.contains('\n'), "{line}");
        };
        // Also beside others that serve.
        for swaps in [path(&place).to_vec(), [path(&dir.0), path(&place)].concat()] {
            let refused = choose_from(&swaps, &usable, limits(8 * MIB)).unwrap_err();
            says_why(&refused.to_string(), "--swap ");
        }
        let variable = Auto::of(Some(place.clone().into()));
        let refused = choose_from(&one(Place::Auto), &variable, limits(8 * MIB)).unwrap_err();
        says_why(&refused.to_string(), "UZSWAP_SWAP_DIR=");
    }
}

#[test]
fn the_default_directory_is_nobodys_choice() {
    let choice = choose_from(&one(Place::Auto), &nowhere(), limits(8 * MIB)).unwrap();
    assert!(choice.areas.is_empty());
    let [note] = &choice.notes[..] else {
        panic!("{:?}", choice.notes);
    };
    assert!(note.contains("no swap in /nowhere: no such directory; going on without"));
    assert_eq!(Auto::of(None), Auto::Default(DEFAULT_DIR.into()));
    assert_eq!(Auto::of(Some("".into())), Auto::Default(DEFAULT_DIR.into()));
    let none = choose_from(&one(Place::None), &nowhere(), limits(8 * MIB)).unwrap();
    assert!(none.areas.is_empty() && none.notes.is_empty());
}

#[test]
fn an_empty_file_becomes_a_swap_area_and_stays_one() {
    let Some(dir) = Dir::new("given") else { return };
    let file = dir.file("swap", b"");
    {
        let area = area(&path(&file), 8 * MIB);
        use_it(&area);
        let taken = refusal(&path(&file));
        assert!(taken.contains("another uzswap"), "{taken}");
    }
    assert_eq!(fs::metadata(&file).unwrap().len(), HEADER + 8 * MIB);
    // Its size is settled; less of it may be used.
    assert_eq!(area(&path(&file), 16 * MIB).nr_slots, 8 * MIB / SLOT as u64);
    let link = dir.0.join("link");
    symlink(&file, &link).unwrap();
    assert!(!dir.is_empty(), "a file that was named stays");
    let half = area(&path(&link), 4 * MIB);
    assert_eq!(half.nr_slots, 4 * MIB / SLOT as u64);
    use_it(&half);
}

#[test]
fn a_named_file_gives_its_space_back_when_the_last_process_has_ended() {
    #[repr(align(4096))]
    struct Mib([u8; 1 << 20]);
    let Some(dir) = Dir::new("end") else { return };
    let file = dir.file("swap", b"");
    let _alone = alone();
    let used = || {
        let area = area(&path(&file), 8 * MIB);
        let device = Device::<Fd>::new(area.file.as_raw_fd(), area.nr_slots).expect("a device");
        device.write_at(0, &Mib([1; 1 << 20]).0).expect("written");
        let group = GroupFile::create().unwrap();
        let swap = SwapGroup::new(vec![area], true, &group.config.swap).unwrap();
        (group, swap)
    };
    let taken = || fs::metadata(&file).unwrap().blocks() * 512;
    let (group, swap) = used();
    group.claim(
        0,
        uzswap_group::group::Identity {
            pid: std::process::id(),
            ..Default::default()
        },
        |_| true,
    );
    swap.end(&group);
    assert!(taken() >= MIB, "somebody still needs it");
    let (group, swap) = used();
    swap.end(&group);
    assert!(taken() < MIB, "{} bytes are still taken", taken());
}

#[test]
fn an_overlay_tells_where_its_files_are() {
    let mounts = "21 1 0:19 / /proc rw - proc proc rw\n\
                  33 1 0:28 / / rw,relatime shared:1 - overlay overlay \
                  rw,lowerdir=/low,upperdir=/run/rw/upper,workdir=/run/rw/work\n";
    let upper = |mount| disk::upper_directory(mounts, mount);
    assert_eq!(upper("33"), Some("/run/rw/upper"));
    assert_eq!((upper("21"), upper("3")), (None, None));
}

#[test]
fn a_file_that_holds_data_is_refused_and_keeps_it() {
    let Some(dir) = Dir::new("data") else { return };
    for bytes in [&[0_u8; 16 << 20][..], b"notes", &[b'x'; 16 << 20]] {
        let file = dir.file("data", bytes);
        let line = refusal(&path(&file));
        assert!(
            line.contains("swap area") || line.contains("too small"),
            "{line}"
        );
        assert!(line.contains(&*file.to_string_lossy()), "{line}");
        assert!(fs::read(&file).unwrap() == bytes);
    }
    let line = refusal(&path(Path::new("/dev/null")));
    assert!(line.contains("neither a directory"), "{line}");
    if let Ok(file) = tempfile_in_memory() {
        let line = refusal(&path(&file));
        fs::remove_file(&file).unwrap();
        assert!(line.contains("memory itself"), "{line}");
    } else {
        eprintln!("SKIPPED the file on tmpfs: /dev/shm cannot be written");
    }
}

fn tempfile_in_memory() -> std::io::Result<PathBuf> {
    let file = PathBuf::from(format!("/dev/shm/uzswap-test-{}", std::process::id()));
    fs::write(&file, b"").map(|()| file)
}

#[test]
fn limits_are_kept_or_said() {
    assert!(Limits::of_process(Some(Size(MIN_LEN))).is_ok());
    let line = Limits::of_process(Some(Size(MIB))).unwrap_err().to_string();
    assert!(line.contains("--swap-max 1 MiB is too small"), "{line}");
    let ulimit = |file_size| Limits {
        max: None,
        file_size,
        promised: vec![(8, 24 * MIB)],
    };
    let new_file = |limits: &Limits, free| limits.of_new_file(7, free);
    assert_eq!(new_file(&ulimit(u64::MAX), 64 * MIB).unwrap(), 8192);
    assert_eq!(new_file(&ulimit(HEADER + 4 * MIB), 64 * MIB).unwrap(), 1024);
    let line = new_file(&ulimit(MIB), 64 * MIB).unwrap_err().to_string();
    assert!(line.contains("ulimit -f"), "{line}");
    let line = new_file(&ulimit(u64::MAX), MIB).unwrap_err().to_string();
    assert!(line.contains("only 1 MiB free"), "{line}");
    // Another area of this run is on disk 8.
    let beside = ulimit(u64::MAX).of_new_file(8, 64 * MIB).unwrap();
    assert_eq!(beside, 2048);
    let line = ulimit(u64::MAX).of_new_file(8, 48 * MIB).unwrap_err();
    assert!(line.to_string().contains("another --swap"), "{line}");
    // What the location of a page can name.
    assert_eq!(new_file(&ulimit(u64::MAX), 1 << 50).unwrap(), 1 << 28);
}

#[test]
fn sysfs_tells_disks_that_turn_and_disks_that_are_memory() {
    let Some(sys) = Dir::new("sys") else { return };
    let add = |disk: &str, turns: &str| {
        let queue = sys.0.join("devices").join(disk).join("queue");
        fs::create_dir_all(&queue).unwrap();
        fs::write(queue.join("rotational"), turns).unwrap();
    };
    let block = sys.0.join("dev/block");
    fs::create_dir_all(&block).unwrap();
    for (disk, turns) in [("sda", "1\n"), ("nvme0n1", "0\n"), ("zram0", "0\n")] {
        add(disk, turns);
    }
    fs::create_dir_all(sys.0.join("devices/sda/sda1")).unwrap();
    for (number, target) in [
        ("8:0", "sda"),
        ("8:1", "sda/sda1"),
        ("259:0", "nvme0n1"),
        ("252:0", "zram0"),
    ] {
        symlink(Path::new("../../devices").join(target), block.join(number)).unwrap();
    }
    let dev = libc::makedev;
    let turning = [dev(8, 0), dev(8, 1), dev(259, 0), dev(0, 77)];
    assert_eq!(
        turning.map(|dev| disk::is_rotational(&sys.0, dev)),
        [true, true, false, false]
    );
    let memory = [dev(1, 0), dev(252, 0), dev(8, 1), dev(0, 77)];
    assert_eq!(
        memory.map(|dev| disk::is_memory_device(&sys.0, dev)),
        [true, true, false, false]
    );
}

/// A loop device, detached when dropped.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Option<Loop> {
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("SKIPPED: loop devices need root");
            return None;
        }
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Loop(
                String::from_utf8(output.stdout).unwrap().trim().to_owned(),
            )),
            other => {
                eprintln!("SKIPPED: no loop device to be had: {other:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_used_if_it_is_free_and_a_swap_area() {
    let Some(dir) = Dir::new("block") else { return };
    let size = usize::try_from(HEADER + 16 * MIB).unwrap();
    let image = dir.file("image", &vec![0; size]);
    let Some(attached) = Loop::new(&image) else {
        return;
    };
    let device = PathBuf::from(&attached.0);
    let line = refusal(&path(&device));
    assert!(line.contains("mkswap"), "{line}");
    match Command::new("mkswap").arg(&device).output() {
        Ok(done) if done.status.success() => {}
        other => {
            eprintln!("SKIPPED: no mkswap: {other:?}");
            return;
        }
    }
    {
        let area = area(&path(&device), 8 * MIB);
        assert_eq!(area.nr_slots, 8 * MIB / SLOT as u64);
        use_it(&area);
        let line = refusal(&path(&device));
        assert!(line.contains("mounted, or in use"), "{line}");
    }
    let all = area(&path(&device), u64::MAX);
    assert_eq!(all.nr_slots + HEADER_SLOTS, (size / SLOT) as u64);
    use_it(&all);
}
