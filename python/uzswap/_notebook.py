"""The magic ``%uzswap``: a table of what the kernel's memory is, and its limit changed."""

import os
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from ._command import call, stat

_UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB"]


def size(number: float) -> str:
    """A number of bytes as people write it."""
    unit = 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number /= 1024
        unit += 1
    return f"{number:.0f} {_UNITS[unit]}" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"


def rows(said: Dict[str, Any]) -> List[Tuple[str, int, str]]:
    """What takes memory: its name, bytes of RAM (of disk for swap), and what there is to say."""
    ratio = said["zswapped"] / said["zswap"] if said["zswap"] else 0
    found = [
        ("resident", said["resident"], "as the program sees it"),
        ("compressed", said["zswap"], f"holds {size(said['zswapped'])}, {ratio:.1f}:1"),
        ("tables", said["metadata"], "of uzswap"),
        ("outside", said["unmanaged"], "not managed: stacks, files, shared memory"),
    ]
    if said.get("swap_total"):
        found.append(("swap", said["swap_used"], f"on disk, of {size(said['swap_total'])}"))
    return found


class Table:
    """What ``%uzswap`` shows: text in a terminal, bars in a notebook."""

    def __init__(self, said: Dict[str, Any]):
        self.limit = said["ram_limit"]
        self.rows = rows(said)
        self.faults = f"{said['faults']} faults, {said['refaults']} of them on evicted memory"

    def __repr__(self) -> str:
        lines = [f"{name:<12}{size(used):>12}  {note}" for name, used, note in self.rows]
        return "\n".join([f"{'limit':<12}{size(self.limit):>12}", *lines, self.faults])

    def _repr_html_(self) -> str:
        bars = []
        for name, used, note in self.rows:
            percent = min(100.0, 100.0 * used / max(self.limit, 1))
            bar = f"<div style='background:#4c78a8;height:.8em;width:{percent:.1f}%'></div>"
            bars.append(
                f"<tr><td style='text-align:left'>{name}</td><td>{size(used)}</td>"
                f"<td style='width:16em;text-align:left'>{bar}</td>"
                f"<td style='text-align:left'>{note}</td></tr>"
            )
        limit = f"<tr><td style='text-align:left'>limit</td><td>{size(self.limit)}</td></tr>"
        return f"<table>{limit}{''.join(bars)}</table><p>{self.faults}</p>"


def follow(handle, until: float) -> None:
    """Shows the table anew every second, in its place, until that time."""
    while time.monotonic() < until:
        time.sleep(1)
        try:
            handle.update(Table(stat()))
        except RuntimeError:
            # The run is about to end.
            return


def register(ipython) -> None:
    """Add the magic to a shell of IPython's."""

    def uzswap(line: str) -> Optional[Table]:
        """``%uzswap`` shows this kernel's memory; ``%uzswap ram=2G`` changes a knob before.

        ``%uzswap live`` shows it anew every second for a minute, ``%uzswap live 600`` for ten, while
        other cells run.
        """
        words = line.split()
        if words[:1] == ["live"]:
            from IPython.display import display

            until = time.monotonic() + float(words[1] if len(words) > 1 else 60)
            handle = display(Table(stat()), display_id=True)
            threading.Thread(target=follow, args=(handle, until), daemon=True).start()
            return None
        if words:
            call(["set", str(os.getpid()), *words])
        return Table(stat())

    ipython.register_magic_function(uzswap, "line", "uzswap")
