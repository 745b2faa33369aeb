"""Debian's packaged kernels: fetched by apt into a place of their own, and unpacked."""

import json
import pathlib
import re
import shutil
import subprocess

ARCHIVE = "http://deb.debian.org/debian"
SECURITY = "http://deb.debian.org/debian-security"
SUITES = ["bullseye", "bullseye-security", "bookworm", "bookworm-security", "bookworm-backports",
          "trixie", "trixie-backports", "sid"]
FLAVOURS = {"generic": "linux-image-amd64", "cloud": "linux-image-cloud-amd64"}
# What the image needs of a kernel's modules: a disk with ext4.
WANTED = ("virtio_blk", "virtio_pci", "virtio_pci_modern_dev", "virtio_pci_legacy_dev",
          "crc32c_generic", "crc32c-generic", "crc32c_intel", "crc32c-intel", "ext4")


class Archive:
    """apt with lists of its own, so that this machine's stay as they are."""

    def __init__(self, place):
        self.place = pathlib.Path(place)
        for directory in ("lists/partial", "cache/archives/partial", "debs"):
            (self.place / directory).mkdir(parents=True, exist_ok=True)
        sources = self.place / "sources.list"
        sources.write_text("".join(
            f"deb {SECURITY if suite.endswith('-security') else ARCHIVE} {suite} main\n"
            for suite in SUITES))
        (self.place / "status").touch()
        options = {"Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "/dev/null",
                   "Dir::State::lists": self.place / "lists", "Dir::Cache": self.place / "cache",
                   "Dir::State::status": self.place / "status", "APT::Architecture": "amd64",
                   "Acquire::Languages": "none", "APT::Sandbox::User": "root"}
        self.options = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]

    def run(self, tool, *words):
        done = subprocess.run([tool, *self.options, *words], capture_output=True, text=True,
                              cwd=self.place / "debs", check=True)
        return done.stdout

    def kernels(self):
        """The newest kernel of each suite and flavour: (suite, flavour) -> package, version. Kept
        in a file, as apt takes its time; without that file the archive is asked anew."""
        kept = self.place / "kernels.json"
        if not kept.exists():
            self.run("apt-get", "-q", "update")
            found = [[*which, *package] for which, package in self.ask().items()]
            kept.write_text(json.dumps(found, indent=1))
        return {(suite, flavour): (package, version)
                for suite, flavour, package, version in json.loads(kept.read_text())}

    def ask(self):
        found = {}
        for flavour, meta in FLAVOURS.items():
            for line in self.run("apt-cache", "madison", meta).splitlines():
                _, version, where = (part.strip() for part in line.split("|"))
                suite = where.split()[1].partition("/")[0]
                shown = self.run("apt-cache", "show", f"{meta}={version}")
                package = re.search(r"\b(linux-image-\d\S+) \(= ([^)]+)\)", shown)
                if package:
                    found[suite, flavour] = package[1], package[2]
        return found

    def unpack(self, package, version):
        """A directory with `vmlinuz` and `modules`, in the order in which they are to be loaded."""
        tree = self.place / "trees" / f"{package}_{version.replace(':', '_')}"
        if not (tree / "order").exists():
            shutil.rmtree(tree, ignore_errors=True)
            tree.mkdir(parents=True)
            self.unpack_into(tree, package, version)
        return tree

    def unpack_into(self, tree, package, version):
        packages = [package]
        shown = self.run("apt-cache", "show", f"{package}={version}")
        packages += re.findall(r"\b(linux-(?:modules|binary)-\d\S+)", shown)
        for name in dict.fromkeys(packages):
            self.run("apt-get", "-q", "download", f"{name}={version}")
            deb = next((self.place / "debs").glob(f"{name}_*.deb"))
            subprocess.run(["dpkg-deb", "-x", deb, tree / "all"], check=True)
            deb.unlink()
        vmlinuz = next(iter((tree / "all" / "boot").glob("vmlinuz-*")), None)
        vmlinuz = vmlinuz or next((tree / "all").glob("**/vmlinuz*"))
        shutil.copy(vmlinuz, tree / "vmlinuz")
        order = load_order(tree)
        shutil.rmtree(tree / "all")
        (tree / "order").write_text("".join(f"{name}\n" for name in order))


def load_order(tree):
    """Copies the wanted modules and those they need to `tree`, uncompressed; returns their names,
    those that are needed first."""
    modules = {}
    for path in (tree / "all").glob("**/*.ko*"):
        modules[path.name.partition(".")[0].replace("-", "_")] = path
    (tree / "modules").mkdir()
    order = []

    def add(name):
        name = name.replace("-", "_")
        if name in order or name not in modules:
            return
        path, copy = modules[name], tree / "modules" / f"{name}.ko"
        with open(copy, "wb") as out:
            unpack = {".xz": ["xz", "-dc"], ".zst": ["zstd", "-dc"]}.get(path.suffix, ["cat"])
            subprocess.run([*unpack, path], stdout=out, check=True)
        needs = subprocess.run(["/usr/sbin/modinfo", "-F", "depends", copy], capture_output=True,
                               text=True, check=True).stdout
        for other in filter(None, needs.strip().split(",")):
            add(other)
        order.append(name)

    for name in WANTED:
        add(name)
    return order
