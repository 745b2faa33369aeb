"""Archives in the format of initramfs images ("newc")."""


def archive(files, texts):
    """`files`: name in the image -> (path here, mode); `texts`: name -> contents."""
    out, made = bytearray(), set()

    def entry(name, mode, data, device=(0, 0)):
        encoded = name.encode() + b"\0"
        fields = (len(made) + 1, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        out.extend(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
        out.extend(bytes(-len(out) % 4))
        out.extend(data)
        out.extend(bytes(-len(out) % 4))
        made.add(name)

    def parents(name):
        parts = name.split("/")[:-1]
        for end in range(1, len(parts) + 1):
            directory = "/".join(parts[:end])
            if directory not in made:
                entry(directory, 0o040755, b"")

    for name in ("dev", "proc", "sys", "tmp", "var/tmp", "run", "bin", "etc"):
        parents(f"{name}/x")
    entry("dev/console", 0o020600, b"", (5, 1))
    for name, (path, mode) in files.items():
        parents(name)
        entry(name, 0o100000 | mode, path.read_bytes())
    for name, text in texts.items():
        parents(name)
        entry(name, 0o100644, text.encode())
    entry("TRAILER!!!", 0, b"")
    return bytes(out)
