"""A client of redis that knows what it has stored."""

import random
import socket
import time


class Keys:
    """A connection to the server at a Unix socket."""

    def __init__(self, path, seed):
        self.random, self.known, self.verified = random.Random(seed), {}, 0
        self.socket = socket.socket(socket.AF_UNIX)
        end = time.monotonic() + 60
        while True:
            try:
                self.socket.connect(path)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        self.socket.settimeout(300)
        self.file = self.socket.makefile("rb")

    def ask(self, *words):
        """Sends a command and returns its answer."""
        out = b"*%d\r\n" % len(words)
        for word in words:
            word = word if isinstance(word, bytes) else str(word).encode()
            out += b"$%d\r\n%s\r\n" % (len(word), word)
        self.socket.sendall(out)
        line = self.file.readline()
        if not line:
            raise ConnectionError("redis is gone")
        if line[:1] != b"$":
            return line[1:].strip()
        length = int(line[1:])
        return self.file.read(length + 2)[:-2] if length >= 0 else None

    def step(self):
        """Stores a few values and reads a few back. Returns what is wrong, if something is."""
        for _ in range(20):
            key = self.random.randrange(8000)
            value = self.random.randbytes(48) * self.random.randrange(1, 90)
            if self.ask("SET", key, value) != b"OK":
                return f"redis refused key {key}"
            self.known[key] = hash(value)
            key = self.random.choice(list(self.known))
            self.verified += 1
            if hash(self.ask("GET", key)) != self.known[key]:
                return f"WRONG: redis key {key}"
        if self.random.random() < 0.003:
            self.ask("BGSAVE")
        return None
