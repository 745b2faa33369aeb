//! *What*: what a pool is to be like, as C says it.
//! *Invariants*: fields are only added, at the end; those that a caller does not have are zero,
//! which stands for the default. *Locking*: none. *Context*: threads of the host.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use uzswap_pools::{Builder, FaultMode, Pool, Swap};

/// As the header has it.
#[repr(C)]
pub struct uzswap_params {
    size: usize,
    limit: u64,
    max_size: u64,
    compressor: *const c_char,
    swap: *const c_char,
    swap_max: u64,
    fault_mode: u32,
    flags: u32,
}

const NO_GUARD: u32 = 1;
const NO_BACKGROUND: u32 = 2;

/// The number of a mode.
pub const fn number_of(mode: FaultMode) -> u32 {
    match mode {
        FaultMode::Auto => 0,
        FaultMode::Signal => 1,
        FaultMode::Thread => 2,
        FaultMode::Segv => 3,
    }
}

/// A builder as `params` says; an error says what makes no sense.
///
/// # Safety
/// `params` has as many bytes as its size says; strings end with a zero byte.
pub unsafe fn builder(params: *const uzswap_params) -> Result<Builder, &'static str> {
    // SAFETY: the size is the first field of every version.
    let size = unsafe { params.cast::<usize>().read() };
    if size < size_of::<usize>() || size > 4096 {
        return Err("the size of the parameters is not set: begin with UZSWAP_PARAMS_INIT");
    }
    // SAFETY: zeroes are a valid structure.
    let mut all: uzswap_params = unsafe { std::mem::zeroed() };
    let known = size.min(size_of::<uzswap_params>());
    // SAFETY: the caller's promise.
    unsafe {
        let to = (&raw mut all).cast::<u8>();
        to.copy_from_nonoverlapping(params.cast(), known);
    }
    let mut builder = Pool::builder();
    if all.limit > 0 {
        builder = builder.limit(all.limit);
    }
    if all.max_size > 0 {
        builder = builder.max_size(all.max_size);
    }
    if all.swap_max > 0 {
        builder = builder.swap_max(all.swap_max);
    }
    // SAFETY: the caller's promise.
    if let Some(name) = unsafe { string(all.compressor) } {
        let name = name.to_str().map_err(|_| "the compressor is not UTF-8")?;
        builder = builder.compressor(name);
    }
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { string(all.swap) } {
        builder = builder.swap(swap(place));
    }
    builder = builder.fault_mode(match all.fault_mode {
        0 => FaultMode::Auto,
        1 => FaultMode::Signal,
        2 => FaultMode::Thread,
        3 => FaultMode::Segv,
        _ => return Err("there is no such fault mode"),
    });
    if all.flags & !(NO_GUARD | NO_BACKGROUND) != 0 {
        return Err("there is no such flag");
    }
    Ok(builder
        .guard(all.flags & NO_GUARD == 0)
        .background_reclaim(all.flags & NO_BACKGROUND == 0))
}

/// # Safety
/// Null, or a string that ends with a zero byte and lives as long as the result.
unsafe fn string<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

fn swap(place: &CStr) -> Swap {
    let path = Path::new(OsStr::from_bytes(place.to_bytes()));
    match place.to_bytes() {
        b"auto" => Swap::Auto,
        b"none" => Swap::None,
        _ if path.is_dir() => Swap::Dir(path.to_owned()),
        _ => Swap::File(path.to_owned()),
    }
}
