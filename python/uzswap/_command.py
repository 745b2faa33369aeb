"""Where the command is, and what it says of this process."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from typing import Any, Dict, List


def find_command() -> str:
    """Path of ``uzswap``: the one that was installed with this package, else the one in PATH."""
    installed = [
        sysconfig.get_path("scripts"),
        os.path.dirname(sys.executable),
        sysconfig.get_path("scripts", "posix_user"),
    ]
    for directory in installed:
        path = os.path.join(directory, "uzswap")
        if os.access(path, os.X_OK):
            return path
    path = shutil.which("uzswap")
    if path is None:
        raise FileNotFoundError("the command uzswap is not installed: pip install uzswap")
    return path


def call(arguments: List[str]) -> str:
    """What the command prints. Raises RuntimeError with its message if it fails."""
    ran = subprocess.run(
        [find_command(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr.strip() or f"uzswap ended with status {ran.returncode}")
    return ran.stdout


def is_managed() -> bool:
    """Whether this process runs under ``uzswap run``, so that all its memory is managed already.

    >>> is_managed()
    False
    """
    return bool(os.environ.get("UZSWAP_GROUP_FILE"))


def stat() -> Dict[str, Any]:
    """What ``uzswap stat --json`` says of the run that this process is in; sizes in bytes.

    docs/stats.md explains the keys. Raises RuntimeError outside of ``uzswap run``.
    """
    return json.loads(call(["stat", str(os.getpid()), "--json"]))
