"""Memory pools: what the package's ``Pool`` is. The engine is the extension ``_uzswap``."""

from __future__ import annotations

import contextlib
import contextvars
import warnings

from ._uzswap import RawPool as _RawPool
from ._uzswap import __version__, blocking_thread, check_handlers, reinstall_handlers
from ._uzswap import set_mem_handler as _set_mem_handler

__all__ = ["Pool", "check_handlers", "reinstall_handlers", "__version__"]

# The handlers that `with pool:` has replaced, innermost last.
_replaced = contextvars.ContextVar("uzswap_replaced", default=())


def _extent(a):
    """The address and the number of bytes of the memory that an array is in."""
    interface = getattr(a, "__array_interface__", None)
    if interface is None:
        import numpy

        a = numpy.asarray(memoryview(a))
        interface = a.__array_interface__
    address, _ = interface["data"]
    shape = interface["shape"]
    itemsize = a.dtype.itemsize
    if 0 in shape:
        return address, 0
    strides = interface.get("strides")
    if strides is None:
        size = itemsize
        for n in shape:
            size *= n
        return address, size
    low = sum((n - 1) * step for n, step in zip(shape, strides) if step < 0)
    high = sum((n - 1) * step for n, step in zip(shape, strides) if step > 0)
    return address + low, high - low + itemsize


class Pool(_RawPool):
    """A pool of memory with a limit of RAM.

    Parameters
    ----------
    limit : int or str
        RAM, bytes, that it takes at most: resident, compressed, and the tables for both.
    swap : str or None
        "auto" (an unnamed file in UZSWAP_SWAP_DIR or /var/tmp, if that can be), "none", a
        directory, or a file or block device prepared by mkswap.
    swap_max : int or str, optional
        Bytes that swap takes at most; half of what is free on the disk otherwise.
    compressor : str
        "lz4", "zstd[:1-22]", "deflate[:1-12]", "pz" or "auto".
    fault_mode : str
        "auto", "signal", "thread" or "segv".
    guard : bool
        Whether system calls on memory that is out work by themselves. The filter that this takes
        stays with the process and its children.
    max_size : int or str, optional
        Bytes that may be allocated at most; MemoryError beyond.

    Raises
    ------
    ValueError
        A limit under the least, or an argument that makes no sense.
    OSError
        The kernel or a sandbox refuses, or the swap file cannot be used.

    >>> Pool(limit="1M")
    Traceback (most recent call last):
        ...
    ValueError: a pool needs a limit of at least 8 MiB here, and 1 MiB is less: raise it
    """

    def __init__(self, *args, **kwargs):
        blocked = blocking_thread() if self.fault_mode != "thread" else None
        if blocked:
            name, tid = blocked
            warnings.warn(
                f"thread {tid} ({name}) blocks SIGBUS, and would end the process at an array of "
                "this pool: make the first pool before the library that started the thread is "
                'imported, or use fault_mode="thread"',
                RuntimeWarning,
                stacklevel=2,
            )

    def empty(self, shape, dtype=float, order="C"):
        """A new array of that shape and dtype, with anything in it."""
        return self._array(shape, dtype, order, zeroed=False)

    def zeros(self, shape, dtype=float, order="C"):
        """A new array of that shape and dtype, all zero. RAM is taken when it is touched.

        >>> pool = Pool(limit="16M")
        >>> a = pool.zeros((3, 4), dtype="i4")
        >>> a.shape, a.dtype.name, int(a.sum())
        ((3, 4), 'int32', 0)
        """
        return self._array(shape, dtype, order, zeroed=True)

    def _array(self, shape, dtype, order, zeroed):
        import numpy

        dtype = numpy.dtype(dtype)
        if dtype.hasobject:
            raise TypeError(f"arrays of Python objects ({dtype}) have their data elsewhere")
        shape = (shape,) if isinstance(shape, int) or hasattr(shape, "__index__") else tuple(shape)
        count = 1
        for n in shape:
            if n < 0:
                raise ValueError(f"negative dimensions are not allowed: {shape}")
            count *= int(n)
        block = self.block(count * dtype.itemsize, zeroed)
        flat = numpy.asarray(block)[: count * dtype.itemsize]
        return flat.view(dtype).reshape(shape, order=order)

    def handles(self, a):
        """Whether the data of an array are in this pool."""
        address, _ = _extent(a)
        return self.contains(address)

    @contextlib.contextmanager
    def pinned(self, a):
        """Keeps an array in RAM: for libraries whose system calls the guard does not serve.

        >>> pool = Pool(limit="16M")
        >>> a = pool.zeros(1000)
        >>> with pool.pinned(a) as same:
        ...     same is a
        True
        """
        pin = self.pin(*_extent(a))
        try:
            yield a
        finally:
            pin.release()

    def evict_array(self, a):
        """Compresses an array now, with what shares its pages."""
        self.evict(*_extent(a))

    def prefetch_array(self, a):
        """Brings an array in before it is used; MemoryError if it does not fit at once."""
        self.prefetch(*_extent(a))

    def __enter__(self):
        """What numpy allocates from here on, in this context, is in the pool (NEP 49)."""
        before = _set_mem_handler(self.mem_handler())
        _replaced.set(_replaced.get() + (before,))
        return self

    def __exit__(self, *_):
        *outer, before = _replaced.get()
        _replaced.set(tuple(outer))
        _set_mem_handler(before)

    def __repr__(self):
        if self.closed:
            return "<uzswap.Pool, closed>"
        stats = self.stats()
        return f"<uzswap.Pool: {stats['mapped']} bytes in {stats['used']} of {stats['limit']}>"
