//! *What*: numbered places that stand in for a pool's objects and a device's slots. Each call is done
//! at once (the real ones' locking has models of its own), and they are as unkind as they may be: the
//! location that was freed last is handed out next. They complain about use after a free.

use std::sync::{Mutex, MutexGuard};

use super::checker::sync::atomic::AtomicBool;

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    value: u64,
    count: u32,
    /// The page whose entry names it, in a pool.
    owner: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Places([Place; 16]);

impl Places {
    pub fn take(&mut self, value: u64, owner: usize) -> usize {
        let free = self.0.iter().position(|place| place.count == 0);
        let at = free.expect("room");
        self.0[at] = Place {
            value,
            count: 1,
            owner,
        };
        at
    }

    fn live(&mut self, at: usize) -> &mut Place {
        assert!(
            self.0[at].count > 0,
            "place {at} is used after it was freed"
        );
        &mut self.0[at]
    }

    pub fn get(&mut self, at: usize) -> u64 {
        self.live(at).value
    }

    pub fn write(&mut self, at: usize, value: u64) {
        self.live(at).value = value;
    }

    pub fn dup(&mut self, at: usize) {
        self.live(at).count += 1;
    }

    pub fn put(&mut self, at: usize) {
        let place = self.live(at);
        place.count -= 1;
        if place.count == 0 {
            place.value = 0xdead;
        }
    }

    pub fn count(&self, at: usize) -> u32 {
        self.0[at].count
    }

    pub fn owner(&mut self, at: usize) -> usize {
        self.live(at).owner
    }

    pub fn set_owner(&mut self, at: usize, owner: usize) {
        self.live(at).owner = owner;
    }

    pub fn in_use(&self) -> u32 {
        self.0.iter().map(|place| place.count).sum()
    }

    /// The first place in use, and the page it belongs to.
    pub fn first(&self) -> Option<(usize, usize)> {
        let first = self.0.iter().position(|place| place.count > 0)?;
        Some((first, self.0[first].owner))
    }
}

/// A swap device, shared by a process and its children.
pub struct Device {
    places: Mutex<Places>,
    /// What is in the group file: whether anything new may go there.
    pub on: AtomicBool,
}

impl Default for Device {
    fn default() -> Self {
        Device {
            places: Mutex::default(),
            on: AtomicBool::new(true),
        }
    }
}

impl Device {
    pub fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap()
    }

    pub fn in_use(&self) -> u32 {
        self.places().in_use()
    }
}
