"""Where finished shards of a store in a bucket lie, for workers without a folder in common with the process that joins them: beside its versions.

    versions/.shards-<build key>/<hash of the work>/<name>.tar

An object is there whole or not at all, and its name says what is in it: writing it again writes the same. They are deleted with the local
folder of that name; what a lost machine leaves, `prune` deletes after a day.
"""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prep_assets.stores.bucket import Bucket

_END = ".tar"


@dataclass(frozen=True, slots=True)
class ShardDepot:
    """Folders as objects below a prefix.

    Attributes:
        objects: below that prefix.
    """

    objects: Bucket

    def names(self, below: str = "") -> Iterator[str]:
        """What lies here, or in a folder of here."""
        prefix = f"{below}/" if below else ""
        for entry in self.objects.entries(prefix):
            if entry.key.endswith(_END):
                yield entry.key.removesuffix(_END)

    def put(self, name: str, folder: Path) -> None:
        """Send the files of a folder."""
        with tempfile.NamedTemporaryFile(suffix=_END) as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                tar.add(folder, arcname="")
            file.flush()
            self.objects.upload(name + _END, Path(file.name))

    def fetch(self, name: str, folder: Path) -> None:
        """Make `folder` what was sent under a name.

        Raises:
            FileNotFoundError: nothing was.
        """
        temporary = folder.with_name(f".{folder.name}.part")
        temporary.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.parent) as file:
            for block in self.objects.read(name + _END):
                file.write(block)
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r") as tar:
                tar.extractall(temporary, filter="data")
        temporary.rename(folder)
