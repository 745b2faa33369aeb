"""A job that knows every byte of its memory: writes pages, reads them back, forks, maps and unmaps.

    pages.py MIB SECONDS SEED [lossy]

Prints `verified N` and ends with status 0; with WRONG if a page is not what was written. A page
that cannot be read back (SIGBUS) ends the job, as a program's own would; with `lossy` a child has
looked at it before, and its loss is counted.
"""

import hashlib
import mmap
import os
import random
import signal
import sys
import time

PAGE = 4096
WRONG = 86


def contents(seed, area, page, version):
    """A page's bytes: a third is noise, a third repeats one byte, a third is between."""
    name = b"%d %d %d %d" % (seed, area, page, version)
    digest = hashlib.blake2b(name).digest()
    kind = (page * 2654435761 >> 8) % 3
    if kind == 0:
        return hashlib.shake_128(name).digest(PAGE)
    if kind == 1:
        return digest[:1] * PAGE
    return digest * (PAGE // len(digest))


class Area:
    """A mapping, and the version that each of its pages has."""

    def __init__(self, number, pages):
        self.number = number
        self.map = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.versions = [0] * pages

    def write(self, seed, page):
        self.versions[page] += 1
        bytes_ = contents(seed, self.number, page, self.versions[page])
        self.map[page * PAGE:(page + 1) * PAGE] = bytes_

    def check(self, seed, page):
        version = self.versions[page]
        wanted = contents(seed, self.number, page, version) if version else bytes(PAGE)
        found = self.map[page * PAGE:(page + 1) * PAGE]
        if found != wanted:
            at = next(i for i in range(PAGE) if found[i] != wanted[i])
            print(f"WRONG: area {self.number} page {page} version {version} byte {at}", flush=True)
            os._exit(WRONG)


def child(areas, seed, random_):
    """What a fork child does: verifies, writes, verifies what it wrote."""
    for _ in range(200):
        area = random_.choice(areas)
        page = random_.randrange(len(area.versions))
        area.check(seed, page)
        if random_.random() < 0.3:
            area.write(seed, page)
            area.check(seed, page)
    os._exit(0)


def main():
    mib, seconds, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    lossy = "lossy" in sys.argv[4:]
    random_ = random.Random(seed)
    each = mib * 256 // 8
    areas = [Area(number, each) for number in range(8)]
    end = time.monotonic() + seconds
    verified = lost = forks = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while time.monotonic() < end:
        area = random_.choice(areas)
        start = random_.randrange(each)
        for page in range(start, min(start + random_.choice((1, 8, 64)), each)):
            if random_.random() < 0.4:
                area.write(seed, page)
            area.check(seed, page)
            verified += 1
        draw = random_.random()
        if draw < 0.01:
            forks += 1
            pid = os.fork()
            if pid == 0:
                child(areas, seed, random_)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if lossy and status == -signal.SIGBUS:
                lost += 1
            elif status != 0:
                print(f"a child ended with {status}", flush=True)
                os._exit(WRONG if status == WRONG else 1)
        elif draw < 0.015:
            at = random_.randrange(len(areas))
            areas[at].map.close()
            areas[at] = Area(areas[at].number + 8, each)
        elif draw < 0.02:
            area.map.madvise(mmap.MADV_DONTNEED)
            area.versions = [0] * each
    print(f"verified {verified} lost {lost} forks {forks}", flush=True)


if __name__ == "__main__":
    main()
