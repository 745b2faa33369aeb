//! *What*: [`Ranking`]: a host's own rule about which folio is evicted next, of those that the
//! lists have at their cold ends.
//!
//! *Invariants*: without a ranking, and by one that ranks all alike, the coldest goes.
//! *Locking*: called under the lists' lock. *Context*: signal, worker, the reclaimer.

/// Decides what is evicted first.
///
/// ```
/// use uzswap_core::{Candidate, Ranking};
///
/// /// What lies behind `index_end` goes first.
/// struct KeepTheIndex { index_end: usize }
///
/// // SAFETY: it compares numbers.
/// unsafe impl Ranking for KeepTheIndex {
///     fn rank(&self, folio: &Candidate) -> u64 {
///         u64::from(folio.addr < self.index_end)
///     }
/// }
/// ```
///
/// # Safety
/// [`rank`](Ranking::rank) is called where almost nothing is allowed: in signal handlers that have
/// interrupted any code of the host, with locks held that other threads wait for, and in a process
/// beside the host, which shares its memory but has no thread-local storage and is killed for a
/// system call. So it must not allocate, lock, panic, make system calls, use thread-local
/// variables, or read or write memory of a pool. Atomics, and tables that stay in place, are what
/// it may look at.
pub unsafe trait Ranking: Sync {
    /// Where `folio` stands. The candidates are asked about from the coldest on, up to
    /// [`Candidate::MOST`] or the first that ranks 0. The one with the lowest number is evicted, of
    /// several with the same number the coldest. What is passed over for it counts as used just
    /// now. If lately there were folios with a lower number than any candidate, all candidates are
    /// passed over but one.
    fn rank(&self, folio: &Candidate) -> u64;
}

/// A folio that may be evicted: what is brought in and evicted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// The address that it begins at.
    pub addr: usize,
    /// Its length, bytes.
    pub len: usize,
    /// Bytes of it that are in RAM.
    pub resident: usize,
    /// How many of the candidates are colder.
    pub turn: usize,
    /// Whether it was used again soon after it had been evicted.
    pub active: bool,
}

impl Candidate {
    /// How many there are to choose from, at most.
    pub const MOST: usize = 256;
}
