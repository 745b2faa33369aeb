//! *What*: errors as Python's exceptions: `ValueError` for arguments, `MemoryError` for room,
//! `OSError` for what the system refuses, `RuntimeError` for the rest.
//! *Invariants*: none. *Locking*: none. *Context*: Python threads.

use pyo3::PyErr;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use uzswap::{BuildError, LimitError, Pool, PoolError, Size};

/// A pool that could not be built.
pub fn of_build(error: &BuildError) -> PyErr {
    let text = error.to_string();
    match error {
        BuildError::LimitTooLow { .. } | BuildError::Compressor { .. } => {
            PyValueError::new_err(text)
        }
        BuildError::Managed | BuildError::TooManyPools { .. } => PyRuntimeError::new_err(text),
        _ => PyOSError::new_err(text),
    }
}

/// A pool that failed.
pub fn of_pool(error: PoolError) -> PyErr {
    let text = error.to_string();
    match error {
        PoolError::NotOurs => PyValueError::new_err(text),
        PoolError::Lost | PoolError::Kernel(_) => PyOSError::new_err(text),
        PoolError::LostInFork => PyRuntimeError::new_err(text),
        _ => PyMemoryError::new_err(text),
    }
}

/// A limit that was not changed.
pub fn of_limit(error: &LimitError) -> PyErr {
    let text = error.to_string();
    match error {
        LimitError::TooLow { .. } => PyValueError::new_err(text),
        LimitError::LostInFork => PyRuntimeError::new_err(text),
        _ => PyMemoryError::new_err(text),
    }
}

/// An allocation that failed.
pub fn no_room(pool: &Pool, size: usize) -> PyErr {
    PyMemoryError::new_err(format!(
        "no room for {}: the pool has {}",
        Size(size as u64),
        pool.stats()
    ))
}
