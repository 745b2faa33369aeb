"""One command, run to its end natively or under `uzswap run`, of which nothing stays behind.

Whatever a test leaves running becomes a child of this process, which ends it by its number.
"""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

PAGE = os.sysconf("SC_PAGE_SIZE")
PR_SET_CHILD_SUBREAPER = 36


class Ran:
    """What came of a command."""

    def __init__(self, status, timed_out, wall, output, peak, stats):
        # Exit status as a shell's: 128 + N after signal N.
        self.status = status
        self.timed_out = timed_out
        self.wall = wall
        self.output = output
        # Bytes: the highest resident memory of one of its processes, or sum of the private memory
        # of all, as sampled, whichever is more.
        self.peak = peak
        # What `--stats` wrote.
        self.stats = stats


def adopt_orphans():
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(pid):
    found = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        try:
            found += map(int, pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        except OSError:
            # It has ended.
            continue
    return found


def descendants(pid):
    found, level = [], [pid]
    while level:
        level = [child for parent in level for child in children(parent)]
        found += level
    return found


def private_memory(pids):
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm") as file:
                _, resident, shared, *_ = map(int, file.read().split())
        except (OSError, ValueError):
            continue
        total += (resident - shared) * PAGE
    return total


def end_all():
    """Ends and reaps every process below this one."""
    while True:
        # Those that end late give their children to this process: look again until none is left.
        left = descendants(os.getpid())
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, 0)[0]:
                pass
        except ChildProcessError:
            pass


class Watch(threading.Thread):
    """Samples the memory of all processes below this one, at a twentieth of one processor."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak = 0
        self.over = threading.Event()
        self.start()

    def run(self):
        pause = 0.01
        while not self.over.wait(pause):
            before = time.perf_counter()
            self.peak = max(self.peak, private_memory(descendants(os.getpid())))
            pause = max(0.01, 20 * (time.perf_counter() - before))

    def end(self):
        self.over.set()
        self.join()
        return self.peak


def shell_status(code):
    return code if code >= 0 else 128 - code


def wait(process, seconds):
    """Waits for a process, not for ever; whether its time was up, and its largest resident size."""
    end, timed_out = time.monotonic() + seconds, False
    while True:
        pid, code, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(code)
            return timed_out, usage.ru_maxrss * 1024
        if not timed_out and time.monotonic() > end:
            process.kill()
            timed_out = True
        time.sleep(0.005)


def run(command, scratch, cwd=None, env=None, deadline=600, sample=False):
    """Runs `command`; its output goes to a file, as what it starts may outlive it."""
    log, stats = scratch / "output", scratch / "stats.json"
    stats.unlink(missing_ok=True)
    with open(log, "wb") as output:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=cwd or scratch, env=env, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True)
        watch = Watch() if sample else None
        timed_out, largest = wait(process, deadline)
        wall = time.perf_counter() - begin
        peak = max(largest, watch.end() if watch else 0)
    end_all()
    text = log.read_bytes().decode(errors="replace")
    try:
        counted = json.loads(stats.read_text())
    except (OSError, ValueError):
        counted = {}
    return Ran(shell_status(process.returncode), timed_out, wall, text, peak, counted)


def managed(uzswap, options, ram, scratch, command):
    """The command line that runs `command` in `ram` bytes."""
    return [uzswap, "run", "--quiet", "--ram", str(ram), "--stats", scratch / "stats.json",
            *options, "--", *command]
