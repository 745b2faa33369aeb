"""``python -m uzswap``: the command, in this process's place."""

import os
import sys

from ._command import find_command

try:
    command = find_command()
except FileNotFoundError as missing:
    sys.exit(f"uzswap: {missing}")
os.execv(command, ["uzswap", *sys.argv[1:]])
