"""Cut the power of a file system while stores are published to it, and look at what is there afterwards. Needs root.

    PYTHONPATH=tools python -m harness.powercut --cuts 300 --seed 0

A builder publishes versions 1, 2, 3 … to a file system in an image and says each when it is acknowledged. At a moment drawn by the seed the file
system is shut down without writing what is in memory (XFS_IOC_GOINGDOWN, which ext4 knows too), unmounted and mounted again. The last version
that was acknowledged, or a later one, must be current and whole.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.ground import Figures
from harness.workloads import PAYLOADS, publish
from prep_assets.stores.published import Place

GOING_DOWN = 0x8004587D  # _IOR('X', 125, __u32)
NO_LOG_FLUSH = (2).to_bytes(4, "little")
MAKE = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}


def publish_on(mount: Path, first: int, told: int) -> None:
    """Publish versions from one number on, and say each when it is acknowledged, until somebody ends this."""
    place, payloads = Place(mount, "asset", "part"), list(PAYLOADS.values())
    for number in range(first, 1 << 30):
        publish(place, f"{number:064x}", payloads[number % len(payloads)], seed=number)
        os.write(told, f"{number}\n".encode())
        if number % 5 == 0:
            place.remove_unused()


def missing(kind: str) -> str:
    """Why power cannot be cut here; empty where it can."""
    if os.geteuid():
        return "needs root"
    tools = [tool for tool in (MAKE[kind][0], "mount", "losetup") if not shutil.which(tool)]
    return f"needs {', '.join(tools)}" if tools else ""


@contextmanager
def image(kind: str, folder: Path) -> Iterator[tuple[Path, Path]]:
    """A file system in a file, and where it is mounted."""
    file, mount = folder / f"{kind}.img", folder / kind
    mount.mkdir()
    with file.open("wb") as out:
        out.truncate(340 << 20)
    subprocess.run([*MAKE[kind], file], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", file, mount], check=True)
    try:
        yield file, mount
    finally:
        subprocess.run(["umount", mount], check=False)


def one(file: Path, mount: Path, figures: Figures, last: int, wait: float) -> int:
    """Publish for a while, cut, look. The number of the last version that is there."""
    reading, writing = os.pipe()
    builder = os.fork()
    if builder == 0:
        try:
            publish_on(mount, last + 1, writing)
        finally:  # the file system went down
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as told:
        lines = [told.readline()]
        time.sleep(wait)
        handle = os.open(mount, os.O_RDONLY)
        fcntl.ioctl(handle, GOING_DOWN, NO_LOG_FLUSH)
        os.close(handle)
        os.kill(builder, signal.SIGKILL)
        lines += told.readlines()
    os.waitpid(builder, 0)
    _again(file, mount)
    whole = [line for line in lines if line.endswith("\n")]
    if not whole:
        raise SystemExit("the builder published nothing before the cut")
    acknowledged = int(whole[-1])
    figures.points += 1
    return _look(Place(mount, "asset", "part"), figures, acknowledged)


def _again(file: Path, mount: Path) -> None:
    while subprocess.run(["umount", mount], check=False, capture_output=True).returncode:
        time.sleep(0.05)
    subprocess.run(["mount", "-o", "loop", file, mount], check=True)


def _look(place: Place, figures: Figures, acknowledged: int) -> int:
    try:
        current = place.current()
        assert current is not None, "current is gone"
        current.verify()
        number = int(current.manifest.build_key, 16)
        assert number >= acknowledged, f"current is version {number}, {acknowledged} was acknowledged"
    except Exception as error:
        figures.violations.append(f"cut {figures.points}: {error}")
        return acknowledged
    return number


def harness(kind: str, *, cuts: int, seed: int, seconds: float) -> Figures:
    """So many cuts on a file system, for at most so many seconds."""
    figures, chance, end, last = Figures(), random.Random(seed), time.monotonic() + seconds, 0
    with tempfile.TemporaryDirectory() as folder, image(kind, Path(folder)) as (file, mount), contextlib.suppress(KeyboardInterrupt):
        while figures.points < cuts and time.monotonic() < end:
            last = one(file, mount, figures, last, chance.uniform(0, 0.15))
    return figures


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuts", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wrong = 0
    for kind in MAKE:
        if reason := missing(kind):
            print(f"power cuts on {kind}: skipped, {reason}")
            continue
        figures = harness(kind, cuts=options.cuts, seed=options.seed, seconds=options.seconds)
        print("\n".join(figures.violations[:20]))
        print(f"power cuts on {kind}: {figures.points:,}, violations: {len(figures.violations):,}, seed {options.seed}")
        wrong += len(figures.violations)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
