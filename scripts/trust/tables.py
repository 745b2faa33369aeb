"""A job that keeps a table in SQLite's memory, and knows what is in it.

    tables.py SECONDS SEED
"""

import random
import sqlite3
import sys
import time
import zlib

WRONG = 86


def main():
    seconds, random_ = float(sys.argv[1]), random.Random(int(sys.argv[2]))
    end = time.monotonic() + seconds
    db = sqlite3.connect(":memory:")
    db.execute("create table t (k integer primary key, v blob, crc integer)")
    known, checked = {}, 0
    while time.monotonic() < end:
        key = random_.randrange(12000)
        value = random_.randbytes(64) * random_.randrange(1, 40)
        known[key] = zlib.crc32(value)
        db.execute("insert or replace into t values (?, ?, ?)", (key, value, known[key]))
        for key in random_.sample(list(known), min(len(known), 4)):
            value, crc = db.execute("select v, crc from t where k = ?", (key,)).fetchone()
            checked += 1
            if zlib.crc32(value) != crc or crc != known[key]:
                print(f"WRONG: key {key}", flush=True)
                sys.exit(WRONG)
        if random_.random() < 0.0005:
            answer = db.execute("pragma integrity_check").fetchone()[0]
            if answer != "ok" or db.execute("select count(*) from t").fetchone()[0] != len(known):
                print(f"WRONG: {answer}", flush=True)
                sys.exit(WRONG)
    print(f"verified {checked}", flush=True)


if __name__ == "__main__":
    main()
