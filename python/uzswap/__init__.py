"""Memory pools that hold more than their limit of RAM.

Cold pages are compressed in RAM; what does not fit then is written to a swap file, compressed and
encrypted. Arrays of numpy in a pool behave as any other::

    >>> import numpy as np, uzswap
    >>> pool = uzswap.Pool(limit="64M")
    >>> a = pool.zeros((1 << 20, 8), dtype="f8")    # 64 MiB of addresses; RAM as it is touched
    >>> a[12345] = 1.5
    >>> float(a.sum()), pool.handles(a)
    (12.0, True)
    >>> with pool:                                  # whatever numpy allocates here
    ...     b = np.arange(1 << 20)
    >>> pool.handles(b), pool.stats()["used"] <= 64 << 20
    (True, True)

Importing this installs nothing. Sizes are numbers of bytes, or text such as "512M", "1.5G".

``python -m uzswap run --ram 512M -- COMMAND`` is the command ``uzswap``, which comes with this.
In a notebook whose kernel runs under it, ``%load_ext uzswap`` gives ``%uzswap``: what is in memory,
compressed and on swap, ``%uzswap live``, the same as it changes, and ``%uzswap ram=2G``, which
changes the limit.
"""

import sys

if not sys.platform.startswith("linux"):
    raise ImportError(f"uzswap works on Linux only, not on {sys.platform}")

from ._command import find_command, is_managed, stat

__all__ = [
    "Pool",
    "check_handlers",
    "find_command",
    "is_managed",
    "load_ipython_extension",
    "reinstall_handlers",
    "stat",
]

def __getattr__(name):
    """The library of pools, which is loaded when it is asked for."""
    if name not in ("Pool", "check_handlers", "reinstall_handlers", "__version__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from . import _pools
    except ImportError as missing:
        raise ImportError(
            f"uzswap's library cannot be loaded here ({missing}): it needs Linux on x86-64 with "
            "glibc, and an installation by pip; the command works without it"
        ) from missing
    for found in _pools.__all__:
        globals()[found] = getattr(_pools, found)
    return globals()[name]


def load_ipython_extension(ipython):
    """Give the notebook ``%uzswap``."""
    from ._notebook import register

    register(ipython)
