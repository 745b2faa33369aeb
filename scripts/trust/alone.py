"""Namespaces of one's own, in which whatever is left over is uzswap's, and what is left over."""

import atexit
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ALONE = "UZSWAP_TRUST_ALONE"
# Where a checkout is seen that lies in one of the places below, which are covered.
STAND_IN = "/mnt"
# Where uzswap keeps files, and what may stay: its library and image, and its own directories.
PLACES = ("/dev/shm", "/run/uzswap", "/var/tmp", "/tmp")
MAY_STAY = ("libuzswap-", "uzswap-image-")


def build():
    """A uzswap of this checkout whose devices can be made to fail, and whose engine is a debug
    build. As the stories build theirs, so that nothing is built twice."""
    command = ["cargo", "build", "--quiet", "--workspace", "--locked", "--bin", "uzswap",
               "--features", "uzswap-cli/fault-injection"]
    subprocess.run(command, cwd=ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return str(target / "debug" / "uzswap")


def keep(uzswap):
    """A copy of that uzswap, or of one that is built, in a place that stays visible and that no
    later build changes."""
    copy = ROOT / "target" / "trust" / f"uzswap-{os.getpid()}"
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(uzswap or build(), copy)
    return str(copy)


def enter(script):
    """Runs the script again in mount and pid namespaces of its own, as their init, and returns
    there. Ends with a line that says why where that is not allowed."""
    if os.environ.get(ALONE):
        mount_own()
        return
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    tried = subprocess.run([*unshare, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        print(f"SKIPPED {script}: no namespaces of its own here ({tried.stderr.strip()})")
        sys.exit(0)
    os.environ[ALONE] = str(os.getpid())
    command = [sys.executable, str(pathlib.Path(sys.argv[0]).resolve()), *sys.argv[1:]]
    if any(ROOT.is_relative_to(place) for place in PLACES):
        command = [word.replace(str(ROOT), STAND_IN, 1) if word.startswith(str(ROOT)) else word
                   for word in command]
        command = ["sh", "-c", f'mount --bind "$0" {STAND_IN} && exec "$@"', str(ROOT), *command]
    os.execvp("unshare", [*unshare, *command])


def mount_own():
    """Gives this mount namespace empty places, of which /var/tmp and /tmp are on the disk."""
    own = ROOT / "target" / "trust" / f"places-{os.environ[ALONE]}"
    on_disk = own / "var-tmp"
    shutil.rmtree(on_disk, ignore_errors=True)
    on_disk.mkdir(parents=True)
    pathlib.Path("/run/uzswap").mkdir(exist_ok=True)
    run = lambda *command: subprocess.run(command, check=True)
    run("mount", "--bind", on_disk, "/var/tmp")
    for place in ("/dev/shm", "/run/uzswap"):
        run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", place)
    os.chmod("/run/uzswap", 0o755)
    on_disk.chmod(0o1777)
    own_tmp = own / "tmp"
    own_tmp.mkdir()
    own_tmp.chmod(0o1777)
    run("mount", "--bind", own_tmp, "/tmp")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    atexit.register(pathlib.Path(own.parent, f"uzswap-{os.environ[ALONE]}").unlink, missing_ok=True)


def reap():
    """Waits for orphans that have ended, as init does."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def processes():
    """Process ids beside ours that are more than zombies, with their command lines."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            stat = pathlib.Path("/proc", entry, "stat").read_text()
            line = pathlib.Path("/proc", entry, "cmdline").read_bytes()
        except OSError:
            continue
        if stat.rpartition(")")[2].split()[0] not in "ZX":
            found[int(entry)] = line.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def files():
    """Files in uzswap's places that should not stay."""
    found = []
    for place in PLACES:
        for directory, _, names in os.walk(place):
            found += [f"{directory}/{name}" for name in names if not name.startswith(MAY_STAY)]
    return sorted(found)

