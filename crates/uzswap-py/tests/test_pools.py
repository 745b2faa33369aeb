"""Arrays in pools: run by python_programs_use_pools.rs, with the package on the path."""

import contextvars
import doctest
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import uzswap
import uzswap._pools

LIMIT = 16 << 20


def numbers(pool, n):
    a = pool.empty(n, dtype="u8")
    for start in range(0, n, 1 << 16):
        part = np.arange(start, min(start + (1 << 16), n), dtype="u8")
        a[start : start + len(part)] = part // 7
    return a


class Arrays(unittest.TestCase):
    def test_more_than_the_limit(self):
        pool = uzswap.Pool(limit="16M")
        a = numbers(pool, 6 << 20)  # 48 MiB
        for start in range(0, len(a), 100_003):
            self.assertEqual(int(a[start]), start // 7)
        stats = pool.stats()
        self.assertLessEqual(stats["peak"], LIMIT)
        self.assertGreater(stats["stored"] + stats["swapped"], 2 * LIMIT)
        self.assertTrue(pool.handles(a) and pool.handles(a[5:10:2]))
        self.assertFalse(pool.handles(np.arange(3)))
        a.sort()
        self.assertTrue((a[:-1] <= a[1:]).all())

    def test_shapes_and_types(self):
        pool = uzswap.Pool(limit=LIMIT)
        a = pool.zeros((3, 4), dtype=np.int32, order="F")
        self.assertEqual((a.shape, a.dtype, a.flags.f_contiguous), ((3, 4), np.int32, True))
        self.assertEqual(int(a.sum()), 0)
        self.assertEqual(pool.empty(0).shape, (0,))
        self.assertEqual(pool.zeros((), dtype="f4").shape, ())
        self.assertEqual(pool.zeros(np.int64(7)).dtype, np.float64)
        for wrong, error in [((-1,), ValueError), ("x", (TypeError, ValueError))]:
            with self.assertRaises(error):
                pool.zeros(wrong)
        with self.assertRaises(TypeError):
            pool.zeros(3, dtype=object)
        with self.assertRaises(TypeError):
            pool.zeros(3, dtype="nonsense")

    def test_arrays_keep_their_pool(self):
        pool = uzswap.Pool(limit=LIMIT)
        a = numbers(pool, 3 << 20)
        view = a[1000:2000]
        pool.close()
        self.assertTrue(pool.closed)
        del pool, a
        gc.collect()
        self.assertEqual(int(view[5]), 1005 // 7)
        with uzswap.Pool(limit=LIMIT):
            b = np.arange(1 << 20)
        gc.collect()
        self.assertEqual(int(b.sum()), (1 << 20) * ((1 << 20) - 1) // 2)

    def test_after_close(self):
        pool = uzswap.Pool(limit=LIMIT)
        pool.close()
        pool.close()
        for what in [lambda: pool.zeros(3), lambda: pool.limit, pool.stats, pool.__enter__]:
            with self.assertRaisesRegex(ValueError, "closed"):
                what()
        self.assertIn("closed", repr(pool))

    def test_wrong_arguments(self):
        with self.assertRaisesRegex(ValueError, "at least 8 MiB"):
            uzswap.Pool(limit="1M")
        with self.assertRaisesRegex(ValueError, "not a size"):
            uzswap.Pool(limit="much")
        with self.assertRaisesRegex(ValueError, "gzip"):
            uzswap.Pool(limit=LIMIT, compressor="gzip")
        with self.assertRaisesRegex(ValueError, "fault mode"):
            uzswap.Pool(limit=LIMIT, fault_mode="magic")
        with self.assertRaisesRegex(OSError, "/nonexistent"):
            uzswap.Pool(limit=LIMIT, swap="/nonexistent/place")

    def test_no_room(self):
        pool = uzswap.Pool(limit=LIMIT, max_size="20M")
        with self.assertRaisesRegex(MemoryError, "64 MiB.*16 MiB"):
            pool.zeros(64 << 20, dtype="u1")
        with pool, self.assertRaises(MemoryError):
            np.zeros(64 << 20, dtype="u1")
        pool.zeros(1 << 20, dtype="u1")

    def test_limits(self):
        pool = uzswap.Pool(limit="32M")
        a = numbers(pool, 3 << 20)
        pool.limit = "16M"
        self.assertEqual(pool.limit, LIMIT)
        self.assertLessEqual(pool.stats()["used"], LIMIT)
        with self.assertRaises(ValueError):
            pool.limit = 4096
        self.assertGreaterEqual(pool.reclaim("1M"), 1 << 20)
        self.assertEqual(int(a[7]), 1)


class Handlers(unittest.TestCase):
    def test_with_pool(self):
        pool = uzswap.Pool(limit=LIMIT)
        outer = uzswap.Pool(limit=LIMIT)
        with outer:
            with pool:
                a = np.arange(4 << 20)
                a = np.concatenate([a, a[:5]])
                a.resize(len(a) + 1000, refcheck=False)
            b = np.ones(1000)
        c = np.ones(1000)
        self.assertTrue(pool.handles(a) and outer.handles(b))
        self.assertFalse(pool.handles(c) or outer.handles(c))
        self.assertEqual((int(a[4 << 20]), int(a[-1])), (0, 0))
        self.assertLessEqual(pool.stats()["peak"], LIMIT)

    def test_it_is_of_its_context(self):
        pool = uzswap.Pool(limit=LIMIT)
        made = []
        with pool:
            thread = threading.Thread(target=lambda: made.append(np.ones(1000)))
            thread.start()
            thread.join()
            contextvars.copy_context().run(lambda: made.append(np.ones(1000)))
        self.assertEqual([pool.handles(a) for a in made], [False, True])

    def test_an_error_leaves_it(self):
        pool = uzswap.Pool(limit=LIMIT)
        with self.assertRaises(ZeroDivisionError), pool:
            1 / 0
        self.assertFalse(pool.handles(np.ones(10)))

    def test_a_wrong_handler(self):
        from uzswap import _uzswap

        with self.assertRaises(TypeError):
            _uzswap.set_mem_handler(7)


class Files(unittest.TestCase):
    def test_numpy_reads_and_writes(self):
        pool = uzswap.Pool(limit=LIMIT)
        a = numbers(pool, 4 << 20)
        pool.evict_array(a)
        with tempfile.TemporaryFile() as file:
            a.tofile(file)
            file.seek(0)
            with pool:
                b = np.fromfile(file, dtype="u8")
        self.assertTrue(pool.handles(b))
        self.assertTrue(np.array_equal(a, b))

    def test_pins(self):
        pool = uzswap.Pool(limit=LIMIT)
        a = numbers(pool, 1 << 18)
        pool.evict_array(a)
        read, write = os.pipe()
        with pool.pinned(a[:512]) as part:
            self.assertEqual(os.writev(write, [part]), 4096)
        self.assertEqual(os.read(read, 4096), a[:512].tobytes())
        with self.assertRaises(ValueError):
            with pool.pinned(np.ones(10)):
                pass
        pool.prefetch_array(a[::-1])

    def test_fork(self):
        pool = uzswap.Pool(limit=LIMIT)
        a = numbers(pool, 3 << 20)
        pid = os.fork()
        if pid == 0:
            right = int(a[1 << 20]) == (1 << 20) // 7
            a[:] = 1
            os._exit(42 if right and int(a.sum()) == len(a) else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 42)
        self.assertEqual(int(a[1 << 20]), (1 << 20) // 7)
        subprocess.run([sys.executable, "-c", "import numpy"], check=True)


class Hosts(unittest.TestCase):
    def test_faulthandler_and_signals(self):
        code = """
import faulthandler, signal, uzswap, numpy as np
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
pool = uzswap.Pool(limit="16M")
faulthandler.enable()
assert "reinstall" in uzswap.check_handlers()
uzswap.reinstall_handlers()
assert uzswap.check_handlers() is None
a = pool.zeros(5 << 20)
a[:] = np.arange(len(a)) // 9
signal.raise_signal(signal.SIGUSR1)
assert seen == [1] and int(a[900]) == 100
import ctypes
ctypes.string_at(8)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.returncode, -signal.SIGSEGV, done.stderr)
        self.assertIn("Fatal Python error", done.stderr)

    def test_import_installs_nothing(self):
        code = "import uzswap, uzswap._uzswap; print(uzswap.check_handlers(), uzswap.is_managed())"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.stdout, "None False\n", done.stderr)


def load_tests(loader, tests, ignore):
    for module in [uzswap, uzswap._pools, uzswap._command]:
        tests.addTests(doctest.DocTestSuite(module))
    return tests


if __name__ == "__main__":
    unittest.main(verbosity=2)
