//! *What*: numpy's memory handlers (NEP 49): arrays that are made while one is set allocate from
//! its pool.
//!
//! *Invariants*: a handler is in a capsule that numpy and each of its arrays keep; with the capsule
//! goes the handler's handle of the pool. numpy calls it with the interpreter's lock held.
//! *Locking*: the pool's. *Context*: Python threads.

use std::alloc::Layout;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{NonNull, null_mut};

use allocator_api2::alloc::Allocator;
use pyo3::exceptions::{PyImportError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use uzswap::Pool;

/// The name of a handler's capsule, as numpy wants it.
const CAPSULE: &CStr = c"mem_handler";
/// Where `PyDataMem_SetHandler` is in numpy's table of functions, since 1.22.
const SET_HANDLER: usize = 304;
const ALIGN: usize = 16;

/// `PyDataMem_Handler` with its `PyDataMemAllocator`, as numpy's headers have them.
#[repr(C)]
struct Handler {
    name: [c_char; 127],
    version: u8,
    context: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

/// # Safety
/// The context of a handler that lives.
unsafe fn pool_of<'a>(context: *mut c_void) -> &'a Pool {
    // SAFETY: the caller's promise; `handler` boxed it.
    unsafe { &*context.cast::<Pool>() }
}

fn allocate(pool: &Pool, size: Option<usize>, zeroed: bool) -> *mut c_void {
    let layout = size.and_then(|size| Layout::from_size_align(size.max(1), ALIGN).ok());
    let block = layout.and_then(|layout| {
        let block = match zeroed {
            true => pool.allocate_zeroed(layout),
            false => pool.allocate(layout),
        };
        block.ok()
    });
    block.map_or(null_mut(), |block| block.cast().as_ptr())
}

unsafe extern "C" fn malloc(context: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: from numpy, with the handler's context.
    allocate(unsafe { pool_of(context) }, Some(size), false)
}

unsafe extern "C" fn calloc(context: *mut c_void, count: usize, size: usize) -> *mut c_void {
    // SAFETY: as above.
    allocate(unsafe { pool_of(context) }, count.checked_mul(size), true)
}

unsafe extern "C" fn realloc(
    context: *mut c_void,
    memory: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: as above; the memory is of this pool, and its size tells its layout.
    unsafe {
        let pool = pool_of(context);
        let Some(pointer) = NonNull::new(memory.cast::<u8>()) else {
            return allocate(pool, Some(size), false);
        };
        let usable = pool.usable_size(pointer);
        let layouts = Layout::from_size_align(usable, ALIGN)
            .and_then(|old| Ok((old, Layout::from_size_align(size.max(1), ALIGN)?)));
        let moved = match layouts {
            Ok((old, new)) if new.size() >= usable => pool.grow(pointer, old, new),
            Ok((old, new)) => pool.shrink(pointer, old, new),
            Err(_) => return null_mut(),
        };
        moved.map_or(null_mut(), |block| block.cast().as_ptr())
    }
}

unsafe extern "C" fn free(context: *mut c_void, memory: *mut c_void, _size: usize) {
    // SAFETY: as above.
    unsafe {
        let pool = pool_of(context);
        if let Some(pointer) = NonNull::new(memory.cast::<u8>())
            && let Ok(layout) = Layout::from_size_align(pool.usable_size(pointer), ALIGN)
        {
            pool.deallocate(pointer, layout);
        }
    }
}

unsafe extern "C" fn drop_handler(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule that `handler` made, which nobody has any more.
    unsafe {
        let handler = ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr()).cast::<Handler>();
        if !handler.is_null() {
            let handler = Box::from_raw(handler);
            drop(Box::from_raw(handler.context.cast::<Pool>()));
        }
    }
}

/// A capsule with a handler that allocates from `pool`.
pub fn handler(py: Python<'_>, pool: Pool) -> PyResult<Bound<'_, PyAny>> {
    let mut name = [0; 127];
    for (to, from) in name.iter_mut().zip(c"uzswap".to_bytes()) {
        *to = from.cast_signed();
    }
    let handler = Box::new(Handler {
        name,
        version: 1,
        context: Box::into_raw(Box::new(pool)).cast(),
        malloc,
        calloc,
        realloc,
        free,
    });
    let handler = Box::into_raw(handler).cast();
    // SAFETY: a new reference, or null with an error set.
    unsafe {
        let capsule = ffi::PyCapsule_New(handler, CAPSULE.as_ptr(), Some(drop_handler));
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// numpy's table of functions.
fn numpy_api(py: Python<'_>) -> PyResult<*const *const c_void> {
    let new = py.import("numpy._core._multiarray_umath");
    let module = new.or_else(|_| py.import("numpy.core._multiarray_umath"))?;
    let capsule = module.getattr("_ARRAY_API")?;
    // SAFETY: the capsule has no name; null with an error set if it is none.
    let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) };
    if table.is_null() {
        return Err(PyErr::fetch(py));
    }
    Ok(table.cast())
}

/// Makes `handler` numpy's in this context; `None`: its own. Returns the one before.
#[pyfunction]
#[pyo3(signature = (handler))]
pub fn set_mem_handler<'py>(
    py: Python<'py>,
    handler: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let version: String = py.import("numpy")?.getattr("__version__")?.extract()?;
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0_u32));
    if (numbers.next(), numbers.next()) < (Some(1), Some(22)) {
        return Err(PyImportError::new_err(format!(
            "numpy {version} has no memory handlers: use 1.22 or later"
        )));
    }
    if let Some(handler) = &handler {
        // SAFETY: asks whether it is such a capsule.
        let valid = unsafe { ffi::PyCapsule_IsValid(handler.as_ptr(), CAPSULE.as_ptr()) };
        if valid == 0 {
            return Err(PyTypeError::new_err("a handler is a capsule 'mem_handler'"));
        }
    }
    let table = numpy_api(py)?;
    // SAFETY: numpy's table has that function since 1.22; it takes a capsule or null, and returns
    // a new reference, or null with an error set.
    unsafe {
        type SetHandler = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;
        let set: SetHandler = std::mem::transmute(table.add(SET_HANDLER).read());
        let handler = handler.map_or(null_mut(), |handler| handler.as_ptr());
        Bound::from_owned_ptr_or_err(py, set(handler))
    }
}
