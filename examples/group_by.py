#!/usr/bin/env python3
"""A job of over 1 GiB that needs only Python: orders of a shop, grouped, indexed and looked up.

    python3 examples/group_by.py                            # about 1.1 GiB, natively
    uzswap run --ram 256M -- python3 examples/group_by.py   # the same output from 256 MiB

It builds a list of order records (dicts, strings, numbers), an index and a calendar for each
customer, JSON text of every order and an in-memory SQLite table with an index; then it groups,
joins and looks orders up at random in several passes that check one store against the other. The
output is the same for the same --scale and --seed, byte for byte, however much memory it ran in;
timings go to stderr.

Peak memory is about 1.1 GiB times --scale (0.25 for a quick look).
"""

import argparse
import hashlib
import json
import operator
import random
import resource
import sqlite3
import sys
import time

CITIES = ("Aachen Berlin Bremen Dresden Erfurt Essen Freiburg Hamburg Jena Kassel Kiel Leipzig "
          "Mainz Potsdam Rostock Ulm Weimar Worms Zwickau").split()
GOODS = ("anvil bucket candle drill easel funnel gasket hammer inkwell jigsaw kettle ladder "
         "mallet nail oilcan pliers quill ratchet saw trowel vise wrench").split()
STATES = ("paid", "packed", "shipped", "returned")


class Clock:
    """Tells on stderr how long each step took."""

    def __init__(self):
        self.start = self.last = time.perf_counter()

    def step(self, what):
        now = time.perf_counter()
        print(f"{now - self.start:7.1f} s  {what} ({now - self.last:.1f} s)", file=sys.stderr, flush=True)
        self.last = now


def make_order(i, rng, nr_customers):
    """One order, as it might come out of a web shop's log."""
    customer = rng.randrange(nr_customers)
    first = rng.randrange(len(GOODS))
    items = [
        {"good": GOODS[(first + k * 5) % len(GOODS)], "count": k + 1, "cents": 500 * (first + k)}
        for k in range(1 + i % 3)
    ]
    start = i % 300
    track = "\n".join(
        f"day {start + d:03d}: parcel P{i:08d} was scanned in the sorting centre of {CITIES[(customer + d) % len(CITIES)]}"
        for d in range(4 + i % 5)
    )
    return {
        "id": i,
        "day": start,
        "customer": f"customer-{customer:06d}@shop.example",
        "city": CITIES[customer % len(CITIES)],
        "state": STATES[i % len(STATES)],
        "items": items,
        "cents": sum(x["count"] * x["cents"] for x in items),
        "track": track,
        "note": f"order {i:08d}: leave at the door, ring twice, and mind the dog behind the gate",
    }


def digest_of(*parts):
    """A short digest of anything that has a stable repr."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="1 is about 1.1 GiB")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lookups", type=int, default=60_000, help="random lookups in each pass")
    args = parser.parse_args()
    clock, rng = Clock(), random.Random(args.seed)
    nr_orders = max(1000, int(275_000 * args.scale))
    nr_customers = max(10, nr_orders * 3 // 5)
    print(f"orders {nr_orders}, customers {nr_customers}, seed {args.seed}")

    orders = [make_order(i, rng, nr_customers) for i in range(nr_orders)]
    clock.step("orders built")

    by_customer = {}
    for order in orders:
        by_customer.setdefault(order["customer"], []).append(order)
    busiest = sorted(by_customer, key=lambda c: (-len(by_customer[c]), c))[:3]
    print("busiest", [(c, len(by_customer[c])) for c in busiest])
    clock.step("index by customer")

    calendars = {customer: [0] * 366 for customer in by_customer}
    for order in orders:
        calendars[order["customer"]][order["day"]] += 1
    per_day = [0] * 366
    for calendar in calendars.values():
        per_day = list(map(operator.add, per_day, calendar))
    print("busiest day", max(range(366), key=lambda d: (per_day[d], d)), digest_of(per_day))
    clock.step("a calendar for each customer")

    lines = [json.dumps(order) for order in orders]
    print("json", sum(map(len, lines)), "bytes", digest_of(lines[0], lines[-1]))
    clock.step("JSON text")

    db = sqlite3.connect(":memory:")
    db.execute("create table orders (id integer primary key, customer text, city text, state text,"
               " cents integer, note text)")
    db.executemany("insert into orders values (:id, :customer, :city, :state, :cents, :note)", orders)
    db.execute("create index by_city on orders (city, state)")
    db.commit()
    clock.step("SQLite table and index")

    totals = {}
    for order in orders:
        key = order["city"], order["state"]
        count, cents = totals.get(key, (0, 0))
        totals[key] = count + 1, cents + order["cents"]
    from_sql = {
        (city, state): (count, cents)
        for city, state, count, cents in db.execute(
            "select city, state, count(*), sum(cents) from orders group by city, state")
    }
    assert totals == from_sql, "the two stores disagree"
    print("groups", len(totals), digest_of(sorted(totals.items())))
    clock.step("grouped twice")

    for turn in range(2):
        seen = hashlib.sha256()
        for _ in range(args.lookups):
            i = rng.randrange(nr_orders)
            order, text = orders[i], lines[i]
            (note, cents), = db.execute("select note, cents from orders where id = ?", (i,))
            assert json.loads(text) == order and note == order["note"] and cents == order["cents"], i
            assert calendars[order["customer"]][order["day"]] > 0, i
            seen.update(text.encode())
        print("lookups", turn, seen.hexdigest()[:16])
        clock.step(f"random lookups, pass {turn}")

    changed = 0
    for order in orders[:: 7]:
        order["state"] = "archived"
        changed += order["cents"]
    left = sum(order["cents"] for order in orders if order["state"] != "archived")
    print("archived", changed, "left", left)
    clock.step("every seventh archived")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak resident set {peak:.0f} MiB", file=sys.stderr)


if __name__ == "__main__":
    main()
