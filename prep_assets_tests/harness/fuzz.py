"""Feed readers with what is nearly right: bytes of real files with a few changed, cut, doubled or swapped.

    python -m prep_assets_tests.harness.fuzz --inputs 10000000 --seconds 1200 --seed 0

Only `Refused` and `PrepAssetsError` may come out, each input within a second or two and without much memory. A batch is read in a process of its
own, so that a crash in a library is a violation and not an end.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import random
import resource
import shutil
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from prep_assets.config.loading import load_family
from prep_assets.errors import PrepAssetsError, Refused
from prep_assets.records.files import find_files
from prep_assets.records.quarantine import read_quarantine
from prep_assets.records.read import read_blocks
from prep_assets.schemas.registry import apply, convert_with, schemas
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.open import open_store
from prep_assets_tests.harness.ground import Figures
from prep_assets_tests.harness.workloads import FORMATS

Read = Callable[[Path, bytes], None]
SECONDS, MEMORY = 2.0, 1 << 30
WORDS = (
    b"null",
    b"-1",
    b"1e999",
    b"[]",
    b"{}",
    b'""',
    b"\xff\xfe",
    b"99999999999999999999",
    b"true",
    b'"\\ud800"',
    b"NaN",
    b"[" * 600,
    b"\0",
)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """`data` with one to four changes."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, size = chance.randrange(len(changed) + 1), chance.choice((1, 1, 2, 4, 8, 64))
        match chance.randrange(6):
            case 0:
                changed[at : at + size] = chance.randbytes(size)
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = changed[at : at + size] * chance.choice((1, 2, 50))
            case 3:
                del changed[at:]
            case 4:
                changed[at : at + size] = chance.choice(WORDS)
            case 5 if at < len(changed):
                changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _file(name: str, read: Callable[[Path], object]) -> Read:
    def feed(folder: Path, data: bytes) -> None:
        (folder / name).write_bytes(data)
        read(folder)

    return feed


def _store(folder: Path) -> None:
    store = open_store(folder, verify="off")
    for key in store.keys:
        if key in store.data.arrays:
            np.asarray(store.array(key)[:50])
        if store.num_records:
            store.fetch_record(0, key)


def _records(name: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        for file in find_files([name], folder):
            for block in read_blocks(file, 0):
                assert len(block.records) + len(block.unreadable) >= 0

    return read


def _schema(name: str) -> tuple[Read, bytes]:
    convert, example = convert_with(name), dict(schemas()[name].example)

    def read(_: Path, data: bytes) -> None:
        with contextlib.suppress(ValueError, RecursionError):
            payload = msgspec.json.decode(data)
            if isinstance(payload, dict):
                apply(convert, payload)

    return read, json.dumps(example).encode()


def targets(folder: Path) -> dict[str, tuple[Read, bytes]]:
    """By name, what is fed, and the sound bytes that it begins with."""
    found = {f"schema {name}": _schema(name) for name, each in schemas().items() if each.example}
    for name, payload in FORMATS.items():
        place = folder / name
        place.mkdir(parents=True)
        payload(place, 1)
        for path in sorted(place.rglob("*")):
            if path.is_file() and path.suffix in (".h5", ".json", ".npy", ".jsonl") and path.stat().st_size:
                found[f"store {name} {path.relative_to(place)}"] = _stored(place, path.relative_to(place)), path.read_bytes()
    manifest = Manifest(
        "a", "b", "c" * 64, "c" * 64, {"x": 1}, {"read": 1}, {}, {"x": {"bytes": 1, "sha256": "0" * 64, "blocks": "0" * 16}}
    )
    manifest.write(folder)
    found["manifest"] = _file("manifest.json", Manifest.read), (folder / "manifest.json").read_bytes()
    found["quarantine"] = (
        _file("q.jsonl", lambda at: list(read_quarantine(at / "q.jsonl"))),
        (b'{"id": "a", "stage": "b", "reason": "c", "detail": "d", "payload": "e", "payload_length": 1}\n' * 2),
    )
    rows = b'{"messages": [{"role": "user", "content": "a"}]}\n{"instruction": "b", "output": 1.5}\n'
    for name, data in {
        "a.jsonl": rows,
        "a.json": b"[" + rows.strip().replace(b"\n", b",") + b"]",
        "a.csv": b'a,b\n"1",2\n',
        "a.txt": rows,
    }.items():
        found[f"records {name}"] = _file(name, _records(name)), data
    for name, data in (("a.jsonl.gz", gzip.compress(rows, mtime=0)), ("a.parquet", _parquet())):
        found[f"records {name}"] = _file(name, _records(name)), data
    text = b"tokenizer: {name: tok}\ndomains:\n  a: {files: [a.jsonl], schema: alpaca}\npacking: {row_len: 1024}\n"
    found["configuration"] = _file("sft.yaml", lambda at: load_family("sft", at)), text
    return found


def _stored(store: Path, name: Path) -> Read:
    def feed(folder: Path, data: bytes) -> None:
        copy = folder / "store"
        if not copy.exists():
            shutil.copytree(store, copy)
        sound = (store / name).read_bytes()
        (copy / name).write_bytes(data)
        try:
            _store(copy)
        finally:
            (copy / name).write_bytes(sound)

    return feed


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": ["a", "b"], "n": [1, 2]}), out)
    return bytes(out.getvalue())


def batch(name: str, read: Read, sound: bytes, seed: int, size: int, folder: Path) -> list[str]:
    """Feed `size` inputs in a process of its own; what does not hold, in words."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        faults = list(_fed(name, read, sound, seed, size, folder))
        with contextlib.suppress(OSError):
            os.write(writing, "\n".join(faults)[:60_000].encode("utf-8", "backslashreplace"))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return [*said.split("\n")] * bool(said) + ([f"{name}, seed {seed}: the process ended with {code}"] if code else [])


def _fed(name: str, read: Read, sound: bytes, seed: int, size: int, folder: Path) -> Iterator[str]:
    chance = random.Random(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(size):
        data, began = mutated(sound, chance), time.monotonic()
        where = f"{name}, seed {seed}, input {number}"
        try:
            read(folder, data)
        except (Refused, PrepAssetsError):
            pass
        except BaseException as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            yield f"{where}: {type(error).__name__}: {error} ({at.filename}:{at.lineno}); {data[:200]!r}"
        if (took := time.monotonic() - began) > SECONDS:
            yield f"{where}: {took:.1f} s; {data[:200]!r}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if grown > MEMORY:
        yield f"{name}, seed {seed}: {grown:,} bytes of memory"


def harness(folder: Path, *, inputs: int, seed: int, seconds: float, size: int = 500) -> tuple[Figures, Counter[str]]:
    """So many inputs in batches, for so many seconds; the targets in turn."""
    warnings.simplefilter("ignore")
    figures, counts, end, chance = Figures(), Counter[str](), time.monotonic() + seconds, random.Random(seed)
    found = targets(folder / "sound")
    while figures.points < inputs and time.monotonic() < end:
        for name, (read, sound) in found.items():
            if figures.points >= inputs or time.monotonic() > end:
                break
            place = folder / "fed"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            figures.violations += batch(name, read, sound, chance.getrandbits(32), size, place)
            figures.points += size
            counts[name] += size
    return figures, counts


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        figures, counts = harness(Path(folder), inputs=options.inputs, seed=options.seed, seconds=options.seconds)
    print("\n".join(figures.violations[:40]))
    print(f"inputs: {figures.points:,} over {len(counts)} readers, violations: {len(figures.violations):,}, seed {options.seed}")
    raise SystemExit(bool(figures.violations))


if __name__ == "__main__":
    main()
