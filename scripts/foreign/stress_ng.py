"""stress-ng's stressors that check what they do: a unit is a stressor."""

import re

from foreign.suite import Suite, find, must

# Stressor and options of its own. Sizes are small: two of them run at once.
STRESSORS = {
    "vm": "--vm-bytes 48M --vm-method all",
    "vm-addr": "",
    "vm-rw": "--vm-rw-bytes 16M",
    "vm-segv": "",
    "vm-splice": "",
    "mmap": "--mmap-bytes 32M",
    "mmapaddr": "",
    "mmapfixed": "",
    "mmapfork": "",
    "mmapmany": "",
    "mremap": "--mremap-bytes 32M",
    "madvise": "",
    "mprotect": "",
    "mincore": "",
    "mlock": "",
    "msync": "--msync-bytes 16M",
    "munmap": "",
    "brk": "--brk-bytes 64M",
    "malloc": "--malloc-bytes 32M",
    "bigheap": "--bigheap-bytes 96M",
    "stack": "",
    "memcpy": "",
    "memrate": "--memrate-bytes 32M",
    "matrix": "",
    "shm": "--shm-bytes 8M",
    "fork": "",
    "vfork": "",
    "clone": "",
    "exec": "",
    "pthread": "",
    "futex": "",
    "remap": "",
    "sigsegv": "",
    "sigbus": "",
    "sigfpe": "",
    "sigill": "",
    "sigpipe": "",
    "sigq": "",
    "sigchld": "",
    "sigsuspend": "",
    "sigabrt": "",
    "sigtrap": "",
    "signal": "",
    "sigrt": "",
    "sigio": "",
    "pipe": "",
    "sock": "",
    "epoll": "",
    "poll": "",
    "eventfd": "",
    "userfaultfd": "",
    "seccomp": "",
    "zombie": "",
    "wait": "",
    "fault": "",
    "context": "",
}

SHORT = "vm mremap fork signal".split()
# Its exit status is of several runs; these are its words.
STATUS = {0: "verified", 1: "could not run", 2: "failed", 3: "no resources", 4: "not implemented",
          5: "killed", 6: "by signal", 7: "cannot be measured"}


class StressNg(Suite):
    name = "stress-ng"
    summary = "stress-ng's memory, process and signal stressors with --verify"
    packages = ("stress-ng",)
    short = SHORT
    deadline = 120

    def prepare(self):
        self.program = find("stress-ng", "stress-ng")
        self.version = " ".join(must([self.program, "--version"]).split()[:3]).rstrip(",")
        help_text = must([self.program, "--help"])
        self.units = [name for name in STRESSORS if f"--{name} N" in help_text]

    def command(self, unit, scratch, only=None):
        return [self.program, f"--{unit}", "1", *STRESSORS[unit].split(), "--verify", "--timeout",
                "4s", "--metrics-brief", "--seed", "1", "--temp-path", scratch], None

    def results(self, unit, scratch, ran):
        failures = re.findall(r"fail:\s+\[\d+\] (.*)", ran.output)
        return {unit: STATUS.get(ran.status, f"status {ran.status}"),
                **{f"{unit}: {line}": "failed" for line in failures[:5]}}

    def seconds(self, ran):
        """Per operation: all run for the same time."""
        lines = re.findall(r"metrc?:?\s+\[\d+\] \S+\s+(\d+)\s+([\d.]+)\s", ran.output) or \
            re.findall(r"info:\s+\[\d+\] \S+\s+(\d+)\s+([\d.]+)\s", ran.output)
        if not lines or not int(lines[0][0]):
            return None
        return float(lines[0][1]) / int(lines[0][0])
