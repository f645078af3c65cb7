"""A published store: the folder of one version, and its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prep_assets.errors import StoreError
from prep_assets.stores.checked import Result, read_results
from prep_assets.stores.manifest import Manifest, file_hash, payload_faults
from prep_assets.stores.version_folders import QUARANTINE


@dataclass(frozen=True, slots=True)
class Published:
    """A store that can be read.

    Attributes:
        directory: the folder of its version.
        reused: whether it was there before it was asked for.
        notes: what whoever asked for it should know, one sentence each.
    """

    directory: Path
    manifest: Manifest
    reused: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def quarantine(self) -> Path | None:
        """The file of refused records, or `None` where nothing was refused."""
        path = self.directory.with_name(self.directory.name + QUARANTINE)
        return path if self.manifest.quarantine else None

    @property
    def results(self) -> Mapping[str, Result] | None:
        """What each check said when it last ran on exactly this content; `None` where none ever did."""
        return read_results(self.directory, self.manifest.content_hash)

    @property
    def bytes(self) -> int:
        """Size of its payload."""
        return sum(int(entry["bytes"]) for entry in self.manifest.files.values())

    def verify(self) -> None:
        """Compare every file with the manifest.

        Raises:
            StoreError: a file is missing, cut short, altered or foreign; every such file is named.
        """
        faults = payload_faults(self.directory, self.manifest)
        if self.quarantine is not None and (not self.quarantine.is_file() or file_hash(self.quarantine) != self.manifest.quarantine):
            faults.append(f"{self.quarantine.name}: missing or altered")
        if faults:
            raise StoreError(f"{self.directory} is not what its manifest says:\n  " + "\n  ".join(faults))
