"""Other projects' loaders, from checkouts that the environment names."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest


def checkout(variable: str, project: str) -> Path:
    """The folder that `variable` names; the test is skipped where it names none."""
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} names no checkout of {project}")
    return Path(folder)


def bypass(name: str, folder: Path) -> None:
    """A package whose modules can be imported without its ``__init__.py``, which would import what they do not need."""
    package = types.ModuleType(name)
    package.__path__ = [str(folder)]
    package.__spec__ = importlib.util.spec_from_loader(name, None, is_package=True)
    sys.modules[name] = package


def import_astrai(folder: Path, scratch: Path) -> Any:
    """``astrai.dataset`` of a checkout, from a copy in `scratch`.

    Its ``type X = …`` statements are Python 3.12's and are written as assignments. ``astrai/__init__.py`` and ``astrai/config/__init__.py``
    import its models and its server, with CUDA kernels and FastAPI, and are left out; the data sets, their storage and what they import are
    as they are.
    """
    if "astrai.dataset" not in sys.modules:
        copy = scratch / "astrai"
        shutil.copytree(folder / "astrai", copy)
        for path in copy.rglob("*.py"):
            text = path.read_text("utf-8")
            path.write_text(re.sub(r"^type (\w+) =", r"\1 =", text, flags=re.MULTILINE), "utf-8")
        bypass("astrai", copy)
        bypass("astrai.config", copy / "config")
    return importlib.import_module("astrai.dataset")
