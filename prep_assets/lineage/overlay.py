"""A second folder of stores for a trial: what a change leaves alone is linked from the real one, what it changes is built in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prep_assets.stores.published import Place


class Overlay:
    """A folder of stores over another one. Nothing is ever written to that one."""

    def __init__(self, real: Path, folder: Path) -> None:
        self.real, self.folder = real, folder
        hashes = real / ".hashes"
        if hashes.is_dir():  # so that no source file is hashed again
            shutil.copytree(hashes, folder / ".hashes")

    def link(self, asset: str, partition: str) -> None:
        """Let a store be the real one."""
        here = Place(self.folder, asset, partition).directory
        here.parent.mkdir(parents=True, exist_ok=True)
        here.symlink_to(Place(self.real, asset, partition).directory.absolute(), target_is_directory=True)


@contextmanager
def overlay(real: Path) -> Iterator[Overlay]:
    """An overlay for the length of a trial."""
    with tempfile.TemporaryDirectory(prefix="prep-assets-") as folder:
        yield Overlay(real, Path(folder))
