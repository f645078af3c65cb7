"""A published store: the folder of one version, and its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prep_assets.errors import StoreError
from prep_assets.stores.checked import Result, read_results
from prep_assets.stores.manifest import Manifest, file_hash, payload_faults
from prep_assets.stores.version_folders import QUARANTINE

if TYPE_CHECKING:
    from prep_assets.stores.bucket_shelf import BucketShelf


@dataclass(frozen=True, slots=True)
class Published:
    """A store that can be read.

    Attributes:
        folder: the folder of its version; where it is kept elsewhere, the files come there when `directory` is asked for.
        reused: whether it was there before it was asked for.
        notes: what its reader should know, one sentence each.
        keeper: the bucket where it is kept; `None`: in its folder.
        evidence: the names of the checks that are carried out in one run, each with what came of it where another one has found that out; `None` outside a run.
    """

    folder: Path
    manifest: Manifest
    reused: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)
    keeper: BucketShelf | None = field(default=None, compare=False, repr=False)
    evidence: dict[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def version(self) -> str:
        """Its name among the versions of the store."""
        return self.folder.name

    @property
    def where(self) -> str:
        """Where it is kept, for messages."""
        return str(self.folder) if self.keeper is None else f"{self.keeper.where}/versions/{self.version}"

    @property
    def directory(self) -> Path:
        """Its folder on this machine, with all its files."""
        return self.folder if self.keeper is None else self.keeper.fetch(self.version, self.manifest)

    @property
    def quarantine(self) -> Path | None:
        """The file of refused records, or `None` where nothing was refused."""
        return self.directory.with_name(self.version + QUARANTINE) if self.manifest.quarantine else None

    @property
    def results(self) -> Mapping[str, Result] | None:
        """What each check said when it last ran on exactly this content; `None` where none ever did."""
        if self.keeper is not None:
            return self.keeper.results(self.version, self.manifest.content_hash)
        return read_results(self.folder, self.manifest.content_hash)

    @property
    def bytes(self) -> int:
        """Size of its payload."""
        return sum(int(entry["bytes"]) for entry in self.manifest.files.values())

    def verify(self) -> None:
        """Compare every file with the manifest, where the store is kept, and the manifest with its signature.

        Raises:
            StoreError: a file is missing, cut short, altered or foreign; every such file is named. Or the manifest is forged.
        """
        faults = version_faults(self.folder, self.manifest) if self.keeper is None else self.keeper.faults(self.version, self.manifest)
        if wrong := self.manifest.signature_fault:
            faults = [*faults, f"manifest.json: {wrong}"]
        if faults:
            raise StoreError(f"{self.where} is not what its manifest says:\n  " + "\n  ".join(faults))

    def damage(self) -> str:
        """Why nothing reads it, where `damaged` leads to it."""
        failed = "; ".join(result.summary for result in (self.results or {}).values() if not result.passed)
        return f"{self.where} is damaged, so nothing reads it" + (f": {failed}" if failed else "")


def version_faults(folder: Path, manifest: Manifest) -> list[str]:
    """What of a version in a folder is not as its manifest says, one sentence each; the quarantine file beside it included."""
    faults, quarantine = payload_faults(folder, manifest), folder.with_name(folder.name + QUARANTINE)
    if manifest.quarantine and (not quarantine.is_file() or file_hash(quarantine) != manifest.quarantine):
        faults.append(f"{quarantine.name}: missing or altered")
    return faults
