//! The library of pools for Python: the extension `uzswap._uzswap`, which the package's Python code
//! makes nice to use.
//!
//! *Invariants*: blocks and numpy's handlers have a handle of their pool each, so that arrays keep
//! it alive. The interpreter's lock is given up while a pool waits.
//! *Locking*: a pool's `open` for a moment. *Context*: Python threads.

mod errors;
mod numpy;

use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use allocator_api2::alloc::{Allocator, Layout};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use uzswap::{FaultMode, Pinned, Pool, Size, Swap};

/// Blocks are aligned as numpy's are at best.
const ALIGN: usize = 64;

/// A size as Python says it: a number of bytes, or text such as "512M".
#[derive(FromPyObject)]
enum Bytes {
    Number(u64),
    Text(String),
}

impl Bytes {
    fn value(&self, what: &str) -> PyResult<u64> {
        match self {
            Bytes::Number(bytes) => Ok(*bytes),
            Bytes::Text(text) => text
                .parse::<Size>()
                .map(|size| size.0)
                .map_err(|error| PyValueError::new_err(format!("{what} {text:?} is {error}"))),
        }
    }
}

/// A pool, as the package's `Pool` has it.
#[pyclass(frozen, subclass, module = "uzswap._uzswap")]
struct RawPool {
    open: Mutex<Option<Pool>>,
}

impl RawPool {
    fn pool(&self) -> PyResult<Pool> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || PyValueError::new_err("the pool is closed");
        open.clone().ok_or_else(closed)
    }
}

fn fault_mode(name: &str) -> PyResult<FaultMode> {
    Ok(match name {
        "auto" => FaultMode::Auto,
        "signal" => FaultMode::Signal,
        "thread" => FaultMode::Thread,
        "segv" => FaultMode::Segv,
        _ => {
            return Err(PyValueError::new_err(format!(
                "there is no fault mode {name:?}: use auto, signal, thread or segv"
            )));
        }
    })
}

fn swap(place: Option<&str>) -> Swap {
    match place {
        None | Some("none") => Swap::None,
        Some("auto") => Swap::Auto,
        Some(path) if std::path::Path::new(path).is_dir() => Swap::Dir(path.into()),
        Some(path) => Swap::File(path.into()),
    }
}

#[pymethods]
impl RawPool {
    #[new]
    #[pyo3(signature = (limit, *, swap="auto", swap_max=None, compressor="lz4", fault_mode="auto",
                        guard=true, max_size=None))]
    #[expect(clippy::too_many_arguments, reason = "all but one by name")]
    fn new(
        py: Python<'_>,
        limit: Bytes,
        swap: Option<&str>,
        swap_max: Option<Bytes>,
        compressor: &str,
        fault_mode: &str,
        guard: bool,
        max_size: Option<Bytes>,
    ) -> PyResult<Self> {
        let mut builder = Pool::builder()
            .limit(limit.value("limit")?)
            .swap(self::swap(swap))
            .compressor(compressor)
            .fault_mode(self::fault_mode(fault_mode)?)
            .guard(guard);
        if let Some(bytes) = swap_max {
            builder = builder.swap_max(bytes.value("swap_max")?);
        }
        if let Some(bytes) = max_size {
            builder = builder.max_size(bytes.value("max_size")?);
        }
        let built = py.detach(|| builder.build());
        built
            .map_err(|error| errors::of_build(&error))
            .map(|pool| RawPool {
                open: Mutex::new(Some(pool)),
            })
    }

    /// Gives up this handle; arrays keep the pool.
    fn close(&self, py: Python<'_>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = open.take();
        drop(open);
        py.detach(|| drop(pool));
    }

    #[getter]
    fn closed(&self) -> bool {
        self.pool().is_err()
    }

    #[getter]
    fn limit(&self) -> PyResult<u64> {
        Ok(self.pool()?.limit())
    }

    #[setter]
    fn set_limit(&self, py: Python<'_>, limit: Bytes) -> PyResult<()> {
        let (pool, limit) = (self.pool()?, limit.value("limit")?);
        let changed = py.detach(|| pool.set_limit(limit));
        changed.map_err(|error| errors::of_limit(&error))
    }

    #[getter]
    fn fault_mode(&self) -> PyResult<&'static str> {
        Ok(match self.pool()?.fault_mode() {
            FaultMode::Auto => "auto",
            FaultMode::Signal => "signal",
            FaultMode::Thread => "thread",
            FaultMode::Segv => "segv",
        })
    }

    fn reclaim(&self, py: Python<'_>, size: Bytes) -> PyResult<u64> {
        let (pool, size) = (self.pool()?, size.value("size")?);
        Ok(py.detach(|| pool.reclaim(size)))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, dict) = (self.pool()?.stats(), PyDict::new(py));
        for (name, value) in [
            ("limit", stats.limit),
            ("used", stats.used),
            ("peak", stats.peak),
            ("mapped", stats.mapped),
            ("resident", stats.resident),
            ("stored", stats.stored),
            ("compressed", stats.compressed),
            ("same_filled", stats.same_filled),
            ("swapped", stats.swapped),
            ("metadata", stats.metadata),
            ("faults", stats.faults),
            ("refaults", stats.refaults),
            ("evicted", stats.evicted),
            ("guarded_calls", stats.guarded_calls),
        ] {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    fn contains(&self, address: usize) -> PyResult<bool> {
        Ok(self.pool()?.contains(address as *const u8))
    }

    /// So many bytes, zero or with anything in them.
    fn block(&self, size: usize, zeroed: bool) -> PyResult<Block> {
        let pool = self.pool()?;
        let layout = Layout::from_size_align(size.max(1), ALIGN)
            .map_err(|_| PyMemoryError::new_err("more than there are addresses"))?;
        let memory = match zeroed {
            true => pool.allocate_zeroed(layout),
            false => pool.allocate(layout),
        };
        match memory {
            Ok(memory) => Ok(Block {
                memory: memory.cast(),
                layout,
                pool,
            }),
            Err(_) => Err(errors::no_room(&pool, size)),
        }
    }

    fn evict(&self, py: Python<'_>, address: usize, size: usize) -> PyResult<()> {
        let pool = self.pool()?;
        let done = py.detach(|| pool.evict(range(address, size)));
        done.map_err(errors::of_pool)
    }

    fn cold(&self, address: usize, size: usize) -> PyResult<()> {
        self.pool()?
            .cold(range(address, size))
            .map_err(errors::of_pool)
    }

    fn prefetch(&self, py: Python<'_>, address: usize, size: usize) -> PyResult<()> {
        let pool = self.pool()?;
        let done = py.detach(|| pool.prefetch(range(address, size)));
        done.map_err(errors::of_pool)
    }

    fn pin(&self, py: Python<'_>, address: usize, size: usize) -> PyResult<Pin> {
        let pool = self.pool()?;
        let pinned = py.detach(|| pool.pin(range(address, size)));
        let pinned = pinned.map_err(errors::of_pool)?;
        Ok(Pin(Mutex::new(Some(pinned))))
    }

    /// numpy's handler that allocates from this pool.
    fn mem_handler<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy::handler(py, self.pool()?)
    }
}

/// Memory by address, which is not read here.
fn range(address: usize, size: usize) -> &'static [u8] {
    let at = NonNull::new(address as *mut u8).unwrap_or(NonNull::dangling());
    // SAFETY: the caller holds the array; its bytes are not accessed, only their place is taken.
    unsafe { std::slice::from_raw_parts(at.as_ptr(), size.min(isize::MAX.unsigned_abs())) }
}

/// Memory that stays in RAM until it is released.
#[pyclass(frozen, module = "uzswap._uzswap")]
struct Pin(Mutex<Option<Pinned<'static>>>);

#[pymethods]
impl Pin {
    fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Bytes of a pool, as numpy takes them.
#[pyclass(frozen, module = "uzswap._uzswap")]
struct Block {
    memory: NonNull<u8>,
    layout: Layout,
    pool: Pool,
}

// SAFETY: memory of its own, which is accessed through Python objects only.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

#[pymethods]
impl Block {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("data", (self.address(), false))?;
        dict.set_item("shape", (self.layout.size(),))?;
        dict.set_item("typestr", "|u1")?;
        dict.set_item("version", 3)?;
        Ok(dict)
    }

    #[getter]
    fn address(&self) -> usize {
        self.memory.as_ptr() as usize
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with that layout; no array has it any more.
        unsafe { self.pool.deallocate(self.memory, self.layout) };
    }
}

/// Whether faults of pools arrive; the signal whose handler was replaced otherwise.
#[pyfunction]
fn check_handlers() -> Option<String> {
    uzswap::faults::check().err().map(|error| error.to_string())
}

/// Puts the library's signal handlers first again.
#[pyfunction]
fn reinstall_handlers() -> PyResult<()> {
    Ok(uzswap::faults::reinstall()?)
}

/// Name and id of a thread that blocks SIGBUS.
#[pyfunction]
fn blocking_thread() -> Option<(String, i32)> {
    uzswap::faults::blocking_thread()
}

#[pymodule]
fn _uzswap(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RawPool>()?;
    module.add_class::<Block>()?;
    module.add_class::<Pin>()?;
    module.add_function(wrap_pyfunction!(check_handlers, module)?)?;
    module.add_function(wrap_pyfunction!(reinstall_handlers, module)?)?;
    module.add_function(wrap_pyfunction!(blocking_thread, module)?)?;
    module.add_function(wrap_pyfunction!(numpy::set_mem_handler, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
