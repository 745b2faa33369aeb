"""scribble.py files LIBRARY IMAGE | record PID

A member of a run that root has started becomes nobody, and then writes to the group file what it
likes: other files of code, wherever the path of one stands, or PID in place of its own.
"""
import os
import re
import signal
import struct
import sys

os.setgroups([])
os.setgid(65534)
os.setuid(65534)
group = os.environ["UZSWAP_GROUP_FILE"].rsplit("#", 1)[0]
own = struct.pack("<II", 2, os.getpid())


def files(text, library, image):
    for name, instead in (b"libuzswap-", library), (b"uzswap-image-", image):
        for found in re.finditer(rb"/[^\0]*" + name + rb"[^\0]*\0", text):
            yield found.start(), instead.encode() + b"\0"


def record(text, pid):
    # The process's record begins a page of the file: a state, and the process id.
    for at in range(0, len(text), 4096):
        if text.startswith(own, at):
            yield at + 4, struct.pack("<I", int(pid))


with open(group, "r+b", buffering=0) as file:
    for at, instead in globals()[sys.argv[1]](file.read(), *sys.argv[2:]):
        file.seek(at)
        file.write(instead)
print("written", flush=True)
if sys.argv[1] == "record":
    signal.pause()
