"""CPython's own tests: a unit is a module that `python3 -m test` runs."""

import pathlib
import subprocess
import sys

from foreign.suite import DIED, Missing, Suite

MODULES = """
test_mmap test_threading test_thread test_threadsignals test_threading_local test_subprocess
test_signal test_socket test_socketserver test_asyncio test_ctypes test_multiprocessing_fork
test_multiprocessing_forkserver test_multiprocessing_spawn test_multiprocessing_main_handling
test_concurrent_futures test_faulthandler test_fork1 test_wait3 test_wait4 test_posix test_resource
test_io test_fileio test_file_eintr test_eintr test_select test_selectors test_poll test_epoll
test_fcntl test_ioctl test_gc test_weakref test_pickle test_picklebuffer test_marshal test_zlib
test_bz2 test_lzma test_gzip test_zipfile test_tarfile test_sqlite3 test_json test_os test_pty
test_openpty test_largefile test_mailbox test_memoryio test_memoryview test_buffer test_bytes
test_unicode test_list test_dict test_set test_array test_struct test_decimal test_re test_random
test_hashlib test_ssl test_httplib test_httpservers test_urllib2_localnet test_ftplib test_smtplib
test_xmlrpc test_queue test_sched test_time test_tempfile test_shutil test_pathlib test_glob
test_pwd test_grp test_crypt test_audit test_capi test_tracemalloc test_sys test_sysconfig
test_cmd_line test_cmd_line_script test_popen test_pipes test_venv test_logging test_contextlib
test_generators test_coroutines test_asyncgen test_exceptions test_traceback test_descr test_builtin
test_compile test_ast test_xml_etree test_pyexpat test_tools test_kqueue test_dbm test_dbm_gnu
test_readline test_syslog test_uuid test_platform test_interpreters test__xxsubinterpreters
test_datetime test_zoneinfo test_statistics test_heapq test_bisect test_copy test_deepcopy
test_shelve test_codecs test_locale test_email test_csv test_difflib test_itertools test_functools
""".split()

SHORT = "test_mmap test_fork1 test_poll test_select".split()


DEBIANS = pathlib.Path("/usr/bin/python3")


def candidates():
    yield DEBIANS
    versions = pathlib.Path.home() / ".pyenv/versions"
    yield from sorted(versions.glob("3.*/bin/python3"))
    yield pathlib.Path(sys.executable)


def tests_of(python):
    """Where the tests of this Python lie, if it has them."""
    program = "import test.libregrtest, test.test_mmap; print(test.__path__[0])"
    done = subprocess.run([python, "-c", program], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    return pathlib.Path(done.stdout.strip()) if done.returncode == 0 else None


class CPython(Suite):
    name = "cpython"
    summary = "CPython's own tests (python3 -m test)"
    short = SHORT
    deadline = 900

    @property
    def packages(self):
        """Tests of Debian's Python are a package of that version."""
        if not DEBIANS.exists():
            return ("python3",)
        program = "import sys; print('%d.%d' % sys.version_info[:2])"
        version = subprocess.run([DEBIANS, "-c", program], stdout=subprocess.PIPE, text=True)
        return (f"libpython{version.stdout.strip()}-testsuite",)

    def prepare(self):
        for python in candidates():
            if python.exists() and (tests := tests_of(python)):
                break
        else:
            packages = " ".join(self.packages)
            raise Missing(f"no Python with its tests (apt-get install {packages})")
        self.python = python
        version = subprocess.run([python, "--version"], stdout=subprocess.PIPE, text=True)
        self.version = version.stdout.strip()
        here = {path.name.removesuffix(".py") for path in tests.glob("test_*")}
        self.units = [module for module in MODULES if module in here]

    def command(self, unit, scratch, only=None):
        lines = scratch / "lines"
        lines.unlink(missing_ok=True)
        runner = pathlib.Path(__file__).with_name("cpython_lines.py")
        wanted = ["--match", only] if only else []
        return [self.python, runner, lines, "--timeout", str(self.deadline), *wanted, unit], None

    def results(self, unit, scratch, ran):
        order = ["", "ok", "skipped", DIED, "failed"]
        results = {}
        try:
            lines = (scratch / "lines").read_text().splitlines()
        except FileNotFoundError:
            lines = []
        for line in lines:
            word, test = line.split("\t", 1)
            before = results.get(test, "")
            # `died` is what a test is until it has ended; of several results the worst stays.
            if before == DIED or order.index(word) > order.index(before):
                results[test] = word
        return results
