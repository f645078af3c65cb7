"""What must be the same in every process that carries out shards: each says hello with it, and who differs gets no work."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import xxhash

import prep_assets
from prep_assets.errors import PrepAssetsError

Hello = Mapping[str, str]
PACKAGES = ("gigatoken", "jinja2", "numpy", "pyarrow", "tokenizers", "transformers")
"""Those that decide bytes."""
_SOURCES = (".py", ".jinja", ".json")


class VersionsDiffer(PrepAssetsError):
    """A worker has other software than the process that gives it work."""


@cache
def hello() -> Hello:
    """Versions of Python, of this package and its files, and of what decides bytes beside them; ``-`` where something is not installed."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, "prep-assets": f"{prep_assets.__version__} (files {_files()})", **{name: _version(name) for name in PACKAGES}}


def compare(theirs: Hello) -> None:
    """Refuse to work for a process that says another hello.

    Raises:
        VersionsDiffer: it names both sides.
    """
    ours = hello()
    faults = [f"{name} is {ours.get(name, '-')} there and {theirs.get(name, '-')} here" for name in sorted({*ours, *theirs})
              if ours.get(name) != theirs.get(name)]  # fmt: skip
    if faults:
        raise VersionsDiffer(
            f"the worker on {platform.node()} has other software than the process that gives it work, and could write other bytes: "
            f"{'; '.join(faults)}. Install the same on both, e.g. one image for all nodes, and build again: finished shards are kept"
        )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "-"


def _files() -> str:
    """Hash of the package's own files: its version says nothing about a checkout."""
    root, total = Path(prep_assets.__file__).parent, xxhash.xxh3_64()
    for path in sorted(path for path in root.rglob("*") if path.suffix in _SOURCES):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:8]
