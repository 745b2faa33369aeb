//! *What*: places, numbered from 1, that stand in for a pool's objects and a device's slots. Each
//! call is done at once (the real ones' locking has models of its own), and they are as unkind as
//! they may be: the location that was freed last is handed out next. They complain about use after
//! a free.

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
    pub fn take(&mut self, value: u64, owner: usize) -> u64 {
        let free = self.0.iter().position(|place| place.count == 0);
        let free = free.expect("room");
        self.0[free] = Place {
            value,
            count: 1,
            owner,
        };
        free as u64 + 1
    }

    fn live(&mut self, at: u64) -> &mut Place {
        let place = &mut self.0[at as usize - 1];
        assert!(place.count > 0, "place {at} is used after it was freed");
        place
    }

    pub fn get(&mut self, at: u64) -> u64 {
        self.live(at).value
    }

    pub fn write(&mut self, at: u64, value: u64) {
        self.live(at).value = value;
    }

    pub fn dup(&mut self, at: u64) {
        self.live(at).count += 1;
    }

    pub fn put(&mut self, at: u64) {
        let place = self.live(at);
        place.count -= 1;
        if place.count == 0 {
            place.value = 0xdead;
        }
    }

    pub fn count(&self, at: u64) -> u32 {
        self.0[at as usize - 1].count
    }

    pub fn owner(&mut self, at: u64) -> usize {
        self.live(at).owner
    }

    pub fn set_owner(&mut self, at: u64, owner: usize) {
        self.live(at).owner = owner;
    }

    pub fn in_use(&self) -> u32 {
        self.0.iter().map(|place| place.count).sum()
    }

    /// The first place in use, and the page it belongs to.
    pub fn first(&self) -> Option<(u64, usize)> {
        let first = self.0.iter().position(|place| place.count > 0)?;
        Some((first as u64 + 1, self.0[first].owner))
    }
}

/// A swap device, shared by a process and its children.
#[derive(Default)]
pub struct Device {
    places: Mutex<Places>,
    /// What is in the group file: nothing new may go there.
    pub off: AtomicBool,
}

impl Device {
    pub fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap()
    }

    pub fn in_use(&self) -> u32 {
        self.places().in_use()
    }
}
