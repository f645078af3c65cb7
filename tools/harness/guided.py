"""`fuzz` with libFuzzer (atheris): it sees which lines of the package an input reaches, and goes on from those that reach new ones. Where atheris is
not installed, it is `fuzz` alone.

PYTHONPATH=tools python -m harness.guided --inputs 10000000 --seconds 1200 --seed 0
"""

from __future__ import annotations

import os
import random
import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

try:
    atheris: Any = import_module("atheris")
except ImportError:
    atheris = None

with atheris.instrument_imports(include=["prep_assets"]) if atheris else nullcontext():
    from harness import fuzz

LONGEST = 16_384


def guided(fed: fuzz.Fed, seed: int, size: int, corpus: Path) -> None:
    """`size` inputs that libFuzzer chooses, beginning with the sound ones and those that it kept before."""
    if not any(corpus.iterdir()):
        for number, data in enumerate(fed.target.sound):
            (corpus / f"sound{number}").write_bytes(data)

    def change(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.4:
            return bytes(atheris.Mutate(data, most))
        return fuzz.changed(fed.target, data, chance)[:most]

    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    options = [f"-runs={size}", f"-seed={seed % (1 << 31) or 1}", f"-max_len={LONGEST}", "-timeout=300", "-rss_limit_mb=0", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], fed, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    fuzz.main(guided if atheris else fuzz.plain)
