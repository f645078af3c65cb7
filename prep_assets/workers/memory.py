"""How much memory this process and those that it starts can have: of the machine, or of the control groups that it runs in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prep_assets.errors import ConfigError

_MEMORY, _GROUPS, _ROOT = Path("/proc/meminfo"), Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_NAMES = {
    True: ("memory.max", "memory.current", "inactive_file"),
    False: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Of version 2 of control groups, and of version 1: what a group may have, what it has, and what of that is files that can be read again."""
UNKNOWN = 1 << 62
"""Where the system does not say."""


def memory_there() -> int:
    """Bytes that all processes here can have together."""
    return min([_of_machine("MemTotal"), *(limit for limit, _ in _groups())])


def free_memory() -> int:
    """Bytes that new processes can have now."""
    return min([_of_machine("MemAvailable"), *(max(0, limit - used) for limit, used in _groups())])


def require_memory(needed: int, what: str, remedy: str) -> None:
    """Raises:
    ConfigError: `what` takes more memory than there is.
    """
    if needed > (there := memory_there()):
        raise ConfigError(f"{what} may take {needed >> 20:,} MiB of memory, and there are {there >> 20:,} MiB here. {remedy}")


def _of_machine(field: str) -> int:
    try:
        lines = _MEMORY.read_text("ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))
    except (OSError, ValueError, StopIteration):
        return UNKNOWN


def _groups() -> Iterator[tuple[int, int]]:
    """Limit and use of each control group that this process is in, and of those above it. A container sees its own as the root."""
    try:
        lines = [line.split(":", 2) for line in _GROUPS.read_text("utf-8").splitlines()]
    except OSError:
        return
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers and "memory" not in controllers.split(","):
            continue
        root = _ROOT / "memory" if controllers else _ROOT
        for folder in (root / path.lstrip("/"), *(root / path.lstrip("/")).parents):
            if folder == root or root in folder.parents:
                yield from _group(folder, _NAMES[not controllers])


def _group(folder: Path, names: tuple[str, str, str]) -> Iterator[tuple[int, int]]:
    try:
        limit, used = ((folder / name).read_text("ascii").strip() for name in names[:2])
        files = next(
            (int(line.split()[1]) for line in (folder / "memory.stat").read_text("ascii").splitlines() if line.startswith(names[2])), 0
        )
        if limit != "max":
            yield int(limit), int(used) - files
    except (OSError, ValueError):  # the root of version 2 has none of these
        return
