"""Libraries that compute on arrays, and read and write them, on arrays in pools."""

import importlib.util
import os
import socket
import tempfile
import threading
import unittest

import numpy as np

import uzswap

LIMIT = 24 << 20
ROWS = 2 << 20


def needs(module):
    return unittest.skipUnless(importlib.util.find_spec(module), f"{module} is not installed")


class Base(unittest.TestCase):
    def setUp(self):
        self.pool = uzswap.Pool(limit=LIMIT)

    def tearDown(self):
        self.assertLessEqual(self.pool.stats()["peak"], LIMIT)

    def numbers(self, dtype="f8"):
        """Numbers in no order, of more than the limit with their copies; what is made of them
        natively is the truth."""
        own = (np.arange(ROWS, dtype="u8") * 2654435761 % 1000003).astype(dtype)
        a = self.pool.empty(ROWS, dtype=dtype)
        a[:] = own
        return a, own

    def out(self, a):
        """Compresses an array, so that whoever is next meets it so."""
        self.pool.evict_array(a)
        return a


class Files(Base):
    def setUp(self):
        super().setUp()
        self.place = tempfile.TemporaryDirectory(prefix="uzswap-test-")
        self.addCleanup(self.place.cleanup)
        self.path = os.path.join(self.place.name, "numbers")

    def test_tofile_and_fromfile(self):
        a, own = self.numbers()
        self.out(a).tofile(self.path)
        self.assertTrue((np.fromfile(self.path) == own).all())
        with self.pool:
            b = np.fromfile(self.path)
        self.assertTrue(self.pool.handles(b) and (b == own).all())

    def test_save_and_load(self):
        a, own = self.numbers("i8")
        np.save(self.path, self.out(a))
        with self.pool:
            b = np.load(self.path + ".npy")
        self.assertTrue(self.pool.handles(b) and (b == own).all())

    def test_copies_of_mapped_files(self):
        a, own = self.numbers()
        mapped = np.memmap(self.path, dtype="f8", mode="w+", shape=ROWS)
        mapped[:] = self.out(a)
        a[:] = 0
        self.out(a)[:] = mapped
        self.assertTrue((a == own).all())

    def test_readinto_and_vectors(self):
        a, own = self.numbers()
        parts = [self.out(a)[i : i + 1000] for i in range(0, ROWS, 1000)][:500]
        with open(self.path, "wb") as file:
            written = os.writev(file.fileno(), parts)
        self.assertEqual(written, 500 * 8000)
        b = self.pool.zeros(500 * 1000)
        with open(self.path, "rb", buffering=0) as file:
            self.assertEqual(file.readinto(self.out(b)), written)
        self.assertTrue((b == own[: 500 * 1000]).all())

    def test_sockets(self):
        a, own = self.numbers()
        near, far = socket.socketpair()
        sender = threading.Thread(target=near.sendall, args=(self.out(a),))
        sender.start()
        b = self.pool.zeros(ROWS)
        view, got = memoryview(self.out(b)).cast("B"), 0
        while got < len(view):
            got += far.recv_into(view[got:])
        sender.join()
        self.assertTrue((b == own).all())
        sender = threading.Thread(target=near.sendmsg, args=([self.out(a)[:5000], a[7000:8000]],))
        sender.start()
        far.settimeout(30)
        self.out(b)
        got = far.recvmsg_into([b[:5000], b[7000:8000]], 0, socket.MSG_WAITALL)[0]
        sender.join()
        self.assertEqual(got, 6000 * 8)
        self.assertTrue((b[:5000] == own[:5000]).all() and (b[7000:8000] == own[7000:8000]).all())
        near.close()
        far.close()


class Frames(Base):
    @needs("pandas")
    def test_pandas(self):
        import pandas as pd

        a, own = self.numbers()
        key = self.pool.empty(ROWS, dtype="i8")
        key[:] = np.arange(ROWS) % 97
        with self.pool:
            frame = pd.DataFrame({"key": key, "a": a}, copy=False)
            frame["b"] = frame["a"] * 2 + 1
            self.assertTrue(self.pool.handles(frame["b"].to_numpy()))
            self.out(a)
            sums = frame.groupby("key")["b"].sum()
            ordered = frame["a"][: ROWS // 8].sort_values().to_numpy()
        truth = pd.DataFrame({"key": np.arange(ROWS) % 97, "a": own})
        truth["b"] = truth["a"] * 2 + 1
        self.assertTrue((sums == truth.groupby("key")["b"].sum()).all())
        self.assertTrue((ordered == np.sort(own[: ROWS // 8])).all())

    @needs("polars")
    def test_polars(self):
        import polars as pl

        a, own = self.numbers()
        series = pl.Series("a", self.out(a))
        self.assertEqual(series.sum(), own.sum())
        with self.pool:
            back = series.sort().to_numpy()
        self.assertTrue((back == np.sort(own)).all())

    @needs("pyarrow")
    def test_arrow_shares_the_memory(self):
        import pyarrow as pa
        import pyarrow.compute as pc

        a, own = self.numbers()
        array = pa.Array.from_buffers(pa.float64(), ROWS, [None, pa.py_buffer(self.out(a))])
        self.assertTrue(self.pool.contains(array.buffers()[1].address))
        self.assertEqual(pc.max(array).as_py(), own.max())
        self.assertTrue((array.to_numpy() == own).all())


class Learning(Base):
    @needs("sklearn")
    def test_scikit_learn(self):
        from sklearn.cluster import MiniBatchKMeans
        from sklearn.linear_model import LinearRegression

        x = self.pool.empty((ROWS // 8, 8))
        own = np.random.default_rng(1).normal(size=x.shape).round(2)
        x[:] = own
        y = own @ np.arange(8.0) + 3
        self.out(x)
        with self.pool:
            found = LinearRegression().fit(x, y)
        np.testing.assert_allclose(found.coef_, np.arange(8.0), atol=1e-6)
        groups = [
            MiniBatchKMeans(4, n_init=1, random_state=1, max_iter=3).fit(data).cluster_centers_
            for data in (self.out(x), own)
        ]
        np.testing.assert_allclose(*groups, atol=1e-6)

    @needs("torch")
    def test_torch(self):
        import torch

        a, own = self.numbers()
        tensor = torch.from_numpy(self.out(a))
        self.assertTrue(self.pool.contains(tensor.data_ptr()))
        self.assertEqual(float(tensor.sum()), own.sum())
        tensor.mul_(2)
        self.assertTrue((a == own * 2).all())
        self.assertTrue((tensor.sort().values.numpy() == np.sort(own * 2)).all())


if __name__ == "__main__":
    unittest.main(verbosity=2)
