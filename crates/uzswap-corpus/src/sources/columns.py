# Columns as a data frame holds them: ids, timestamps, prices, measured values, codes of categories, flags.
import random

r = random.Random(2)
N = 900_000


def walk(n, step):
    at, out = 100.0, []
    for _ in range(n):
        at += r.gauss(0, step)
        out.append(at)
    return out


try:
    import numpy as np

    g = np.random.default_rng(2)
    N = 2_000_000
    columns = {
        "id": np.arange(N, dtype=np.int64),
        "time": 1_700_000_000_000_000_000 + np.cumsum(g.integers(0, 5_000_000, N)) * 1000,
        "customer": g.zipf(1.3, N).clip(0, 100_000).astype(np.int64),
        "price": np.round(g.lognormal(3, 1, N), 2),
        "temperature": np.round(20 + np.cumsum(g.normal(0, 0.01, N)), 1),
        "walk": np.cumsum(g.normal(0, 0.1, N)),
        "weight": g.random(N // 2).astype(np.float32),
        "city": g.integers(0, 40, N).astype(np.int8),
        "missing": np.where(g.random(N) < 0.7, np.nan, np.round(g.random(N) * 100)),
        "flag": g.random(N) < 0.05,
    }
    order = np.argsort(columns["customer"], kind="stable")
    joined = columns["price"][order]
except ImportError:
    from array import array

    columns = {
        "id": array("q", range(N)),
        "time": array("q", (1_700_000_000_000_000_000 + i * 2_500_000_000 + r.randrange(5_000_000) * 1000
                            for i in range(N))),
        "customer": array("q", (int(r.paretovariate(0.5)) % 100_000 for _ in range(N))),
        "price": array("d", (round(r.lognormvariate(3, 1), 2) for _ in range(N))),
        "temperature": array("d", (round(x, 1) for x in walk(N, 0.01))),
        "walk": array("d", walk(N, 0.1)),
        "weight": array("f", (r.random() for _ in range(N // 2))),
        "city": array("b", (r.randrange(40) for _ in range(N))),
        "missing": array("d", (float("nan") if r.random() < 0.7 else float(r.randrange(100)) for _ in range(N))),
    }
input()
