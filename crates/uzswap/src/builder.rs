//! *What*: [`Builder`] and [`MemberBuilder`]: what a pool is to be like, and its start.
//!
//! *Invariants*: whatever can be refused is refused before anything is changed in the process:
//! signal handlers come last.
//! *Locking*: none. *Context*: a thread of the host.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use uzswap_compress::Codec;
use uzswap_core::{Masked, Partition, Ranking, min_ram};
use uzswap_group::group::{self, Group};
use uzswap_group::knobs::CODEC_AUTO;
use uzswap_sys::clock::Moment;
use uzswap_sys::file;
use uzswap_sys::uffd::Uffd;

use crate::engines::Place;
use crate::error::BuildError;
use crate::group::GroupMemory;
use crate::pool::{Inner, Pool};
use crate::pool_group::{PoolGroup, Seat, Shared};
use crate::swap::{Swap, SwapFile};
use crate::{faults, fork, guard, masks, sites};

/// How the accesses to pages that are out reach the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultMode {
    /// [`Signal`](FaultMode::Signal) if there is userfaultfd, else [`Segv`](FaultMode::Segv);
    /// [`Thread`](FaultMode::Thread) if that can be and a thread of the process
    /// [blocks SIGBUS](crate::faults::blocking_thread).
    #[default]
    Auto,
    /// By SIGBUS in the thread that faults: the fastest, about 2 µs beside the work itself. The
    /// kernel's own accesses fail: see [`Builder::guard`].
    Signal,
    /// A thread of the library serves them, also the kernel's own accesses: no guard and no
    /// handler is needed, but 10 to 50 µs a fault, and root, `vm.unprivileged_userfaultfd=1` or
    /// access to `/dev/userfaultfd`.
    Thread,
    /// By SIGSEGV and page protection, without userfaultfd.
    Segv,
}

impl From<FaultMode> for group::FaultMode {
    fn from(mode: FaultMode) -> Self {
        match mode {
            FaultMode::Auto => Self::Auto,
            FaultMode::Signal => Self::Signal,
            FaultMode::Thread => Self::Thread,
            FaultMode::Segv => Self::Segv,
        }
    }
}

impl From<uzswap_core::FaultMode> for FaultMode {
    fn from(mode: uzswap_core::FaultMode) -> Self {
        match mode {
            uzswap_core::FaultMode::Signal => Self::Signal,
            uzswap_core::FaultMode::Thread => Self::Thread,
            uzswap_core::FaultMode::Segv => Self::Segv,
        }
    }
}

/// Environment variable by which a managed process knows its group.
const GROUP_ENV: &str = uzswap_group::environment::GROUP_ENV;

/// Whether this process runs under `uzswap run`, so that all of its memory is managed already.
#[must_use]
pub fn is_managed() -> bool {
    std::env::var_os(GROUP_ENV).is_some_and(|value| !value.is_empty())
}

/// Folios of 128 KiB, as the heap's spans are.
const FOLIO_ORDER: u32 = 5;

/// What has been started for a pool.
pub(crate) struct Started {
    pub place: Place,
    pub mode: uzswap_core::FaultMode,
}

/// What holds for all pools of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    guard: bool,
}

/// What each pool of a group may have otherwise.
#[derive(Clone)]
pub(crate) struct Own {
    pub max_size: u64,
    pub ranking: Option<Arc<dyn Ranking + Send>>,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own")
            .field("max_size", &self.max_size)
            .field("ranks", &self.ranking.is_some())
            .finish()
    }
}

impl Default for Own {
    fn default() -> Self {
        Own {
            max_size: u64::MAX,
            ranking: None,
        }
    }
}

/// What a pool is to be like; see [`Pool::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is built before build()"]
pub struct Builder {
    limit: u64,
    own: Own,
    compressor: String,
    fault_mode: FaultMode,
    swap: Swap,
    swap_max: Option<u64>,
    guard: bool,
    background: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            limit: 1 << 30,
            own: Own::default(),
            compressor: "lz4".to_owned(),
            fault_mode: FaultMode::Auto,
            swap: Swap::Auto,
            swap_max: None,
            guard: true,
            background: true,
        }
    }
}

impl Builder {
    /// The RAM, bytes, that the pool takes at most: what is resident, what is compressed, and the
    /// tables for both. 1 GiB unless set. Rounded down to pages of 4 KiB.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// Bytes that may be allocated at most, in RAM or out of it: beyond that allocations fail.
    /// Without it, what can be neither compressed nor swapped is found out when it is touched,
    /// and ends in SIGBUS.
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.own.max_size = bytes;
        self
    }

    /// Has `ranking` decide which memory is evicted first, in place of its age alone.
    pub fn ranking(mut self, ranking: impl Ranking + Send + 'static) -> Self {
        self.own.ranking = Some(Arc::new(ranking));
        self
    }

    /// `lz4` (the default), `zstd[:1-22]`, `deflate[:1-12]`, `pz`, or `auto`: lz4, and a denser
    /// one while that saves time on the swap device.
    pub fn compressor(mut self, name: &str) -> Self {
        name.clone_into(&mut self.compressor);
        self
    }

    /// Where to write what fits in RAM not even compressed; [`Swap::Auto`] unless set.
    pub fn swap(mut self, to: Swap) -> Self {
        self.swap = to;
        self
    }

    /// Bytes that swap takes at most; otherwise half of what is free on the disk.
    pub fn swap_max(mut self, bytes: u64) -> Self {
        self.swap_max = Some(bytes);
        self
    }

    /// How faults come.
    pub fn fault_mode(mut self, mode: FaultMode) -> Self {
        self.fault_mode = mode;
        self
    }

    /// Whether system calls on pages that are out work by themselves (the default), by a seccomp
    /// filter: it stays with the process and its children for good, and sets `no_new_privs` for
    /// those without `CAP_SYS_ADMIN`. Without, such calls fail with `EFAULT`: bring the memory in
    /// by [`Pool::pin`] first. In thread mode none is needed.
    pub fn guard(mut self, on: bool) -> Self {
        self.guard = on;
        self
    }

    /// Whether a process of its own keeps room free (the default), so that faulting threads seldom
    /// have to evict. It shares the memory, and is neither a child nor a thread of the host.
    pub fn background_reclaim(mut self, on: bool) -> Self {
        self.background = on;
        self
    }

    /// Builds it.
    ///
    /// # Errors
    /// See [`BuildError`]; nothing has changed in the process then.
    pub fn build(self) -> Result<Pool, BuildError> {
        let own = self.own.clone();
        start_pool(&Arc::new(self.share()?), Seat::ALONE, own)
    }

    /// Builds a group without pools, for several that have the limit, the swap file and all else
    /// that is set here in common, but for `max_size` and `ranking`, which are each pool's.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn build_group(self) -> Result<PoolGroup, BuildError> {
        self.share().map(|shared| PoolGroup(Arc::new(shared)))
    }

    /// What pools have in common.
    fn share(&self) -> Result<Shared, BuildError> {
        let codec = self.codec()?;
        if is_managed() {
            return Err(BuildError::Managed);
        }
        let (least, limit) = (min_ram(codec.unwrap_or(Codec::Lz4)), self.limit & !4095);
        if limit < least {
            return Err(BuildError::LimitTooLow {
                limit: self.limit,
                least,
            });
        }
        fork::prepare_process()?;
        sites::reserve();
        // A filter that this process has inherited would end it.
        guard::prepare(false).map_err(|error| BuildError::Start { error })?;
        let began = Moment::now();
        let memory = GroupMemory::new().map_err(|error| BuildError::System {
            what: "map the pool's counters",
            error,
        })?;
        self.configure(memory.group(), codec, limit);
        let swap = SwapFile::open(&self.swap, self.swap_max, memory.group())?;
        let hz = began.hz_since();
        memory.group().config.tsc_hz.store(hz, Relaxed);
        let guard = self.guard;
        Ok(Shared::new(memory, swap, Settings { guard }))
    }

    /// The compressor; `None`: auto.
    fn codec(&self) -> Result<Option<Codec>, BuildError> {
        if self.compressor == "auto" {
            return Ok(None);
        }
        let codec = self.compressor.parse();
        codec.map(Some).map_err(|_| BuildError::Compressor {
            name: self.compressor.clone(),
        })
    }

    fn configure(&self, group: &Group, codec: Option<Codec>, limit: u64) {
        let knobs = &group.knobs;
        knobs.ram.store(limit, Relaxed);
        group.config.ram_ceiling.store(limit, Relaxed);
        let codec = codec.map_or(CODEC_AUTO, |codec| codec.to_bits().into());
        knobs.compressor.store(codec, Relaxed);
        let config = &group.config;
        config.folio_order.store(FOLIO_ORDER, Relaxed);
        config.background.store(self.background.into(), Relaxed);
        config.fault_mode.store(self.wanted_mode().into(), Relaxed);
    }

    /// The fault mode to ask the engine for.
    fn wanted_mode(&self) -> FaultMode {
        let needs_thread = self.fault_mode == FaultMode::Auto && masks::blocking_thread().is_some();
        let can_be = || {
            let fd = Uffd::open(file::O_CLOEXEC);
            fd.and_then(Uffd::close).is_ok()
        };
        if needs_thread && can_be() {
            FaultMode::Thread
        } else {
            self.fault_mode
        }
    }
}

/// One more pool of a group; see [`PoolGroup::pool`].
#[derive(Clone, Debug)]
#[must_use = "nothing is built before build()"]
pub struct MemberBuilder {
    group: PoolGroup,
    limit: Option<u64>,
    own: Own,
}

impl MemberBuilder {
    pub(crate) fn of(group: PoolGroup) -> Self {
        MemberBuilder {
            group,
            limit: None,
            own: Own::default(),
        }
    }

    /// The RAM, bytes, that this pool takes at most of the group's; all of it unless set.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// As [`Builder::max_size`].
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.own.max_size = bytes;
        self
    }

    /// As [`Builder::ranking`].
    pub fn ranking(mut self, ranking: impl Ranking + Send + 'static) -> Self {
        self.own.ranking = Some(Arc::new(ranking));
        self
    }

    /// Builds it.
    ///
    /// # Errors
    /// [`BuildError::LimitTooLow`]; [`BuildError::Start`]: the group's limit leaves no room for one
    /// more pool; [`BuildError::TooManyPools`], [`BuildError::GroupOfParent`].
    pub fn build(self) -> Result<Pool, BuildError> {
        let shared = &self.group.0;
        let seat = self.group.take_seat(self.limit)?;
        let pool = start_pool(shared, seat, self.own)?;
        // One that others can ask for memory, whether or not it has needed any itself.
        let engine = pool.engine();
        Masked::block(|m| engine.start_reclaimer(m));
        Ok(pool)
    }
}

/// Starts a pool that counts in `seat`.
fn start_pool(shared: &Arc<Shared>, seat: Seat, own: Own) -> Result<Pool, BuildError> {
    let started = start_somewhere(shared, seat).inspect_err(|_| shared.leave(seat))?;
    let inner = Arc::new(Inner::begin(shared.clone(), seat, started, own)?);
    shared.join(&inner);
    Ok(Pool::of(inner))
}

/// Starts an engine in a free place, past those where the host has mapped something: Go's run-time
/// puts its heap at random addresses.
fn start_somewhere(shared: &Shared, seat: Seat) -> Result<Started, BuildError> {
    let most = Partition::COUNT;
    let place = Place::take().ok_or(BuildError::TooManyPools { most })?;
    let error = match start(shared, seat, &place) {
        Ok(mode) => return Ok(Started { place, mode }),
        Err(error) => error,
    };
    // Held meanwhile, so that another place is taken.
    let elsewhere = error
        .is_place_occupied()
        .then(|| start_somewhere(shared, seat));
    place.give_back();
    match elsewhere {
        None | Some(Err(BuildError::TooManyPools { .. })) => Err(error),
        Some(done) => done,
    }
}

fn start(shared: &Shared, seat: Seat, place: &Place) -> Result<uzswap_core::FaultMode, BuildError> {
    let (group, process) = (shared.group(), shared.memory.claim(seat.run));
    let engine = place.engine();
    let started = Masked::block(|m| engine.start_in(m, group, process, place.partition()));
    let mode = started.map_err(|error| BuildError::Start { error });
    let installed = mode.and_then(|mode| {
        install(mode, shared.settings.guard).inspect_err(|_| {
            // SAFETY: nobody has had memory of it.
            Masked::block(|m| unsafe { engine.stop(m) });
        })?;
        Ok(mode)
    });
    installed.inspect_err(|_| shared.memory.leave(process))
}

/// Has faults and trapped calls arrive. The last step, as it cannot be undone.
fn install(mode: uzswap_core::FaultMode, guarded: bool) -> Result<(), BuildError> {
    let Some(signal) = faults::signal_of(mode) else {
        return Ok(());
    };
    faults::install(signal).map_err(|errno| BuildError::System {
        what: "install a signal handler",
        error: std::io::Error::from_raw_os_error(errno.0),
    })?;
    masks::begin();
    guard::prepare(guarded).map_err(|error| BuildError::Start { error })
}
