"""uzswap: run a program in less memory than it needs.

``python -m uzswap run --ram 512M -- COMMAND`` is the command ``uzswap``, which this package carries.
In a notebook whose kernel runs under it, ``%load_ext uzswap`` gives ``%uzswap``: what is in memory,
compressed and on swap, and ``%uzswap ram=2G``, which changes the limit.
"""

from ._command import find_command, is_managed, stat

__all__ = ["find_command", "is_managed", "stat", "load_ipython_extension"]


def load_ipython_extension(ipython):
    """Give the notebook ``%uzswap``."""
    from ._notebook import register

    register(ipython)
