"""What is given away of a store: its files as they are, with their manifest, and the card and the Croissant that say what they are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prep_assets.assets.workspace import Workspace
from prep_assets.disk.blocks import BLOCK
from prep_assets.disk.written import WrittenFile
from prep_assets.errors import ConfigError, StoreError
from prep_assets.exports.whole import whole
from prep_assets.neighbours.card import card
from prep_assets.neighbours.croissant import croissant
from prep_assets.neighbours.description import describe
from prep_assets.stores.manifest import MANIFEST, Manifest, payload_faults

CARD, CROISSANT = "README.md", "croissant.json"
BESIDE = (CARD, CROISSANT, MANIFEST)
"""What a release has beside the files of the store."""


@dataclass(frozen=True, slots=True)
class Release:
    """A store to be published.

    Attributes:
        where: what messages call it.
        manifest: of the store.
        files: name → the file, or its content.
    """

    where: str
    manifest: Manifest
    files: Mapping[str, Path | bytes]

    def content(self, name: str) -> bytes:
        """What one of its files holds."""
        found = self.files[name]
        return found if isinstance(found, bytes) else found.read_bytes()

    def size(self, name: str) -> int:
        """How large one of its files is."""
        found = self.files[name]
        return len(found) if isinstance(found, bytes) else found.stat().st_size


def release_of(workspace: Workspace, asset: str, partition: str = "") -> Release:
    """The release of a current store, whose files are what its manifest says.

    Raises:
        ConfigError: it has no file that others can read.
        StoreError: as `describe`; or a file is altered.
    """
    said, published = describe(workspace, asset, partition)
    if not said.tables:
        raise ConfigError(
            f"{said.name} has neither Parquet nor JSON lines in it, which is what other tools read. Publish an export of it:\n"
            f"  exports: {{hub: {{from: {asset}, to: hf_parquet}}}}"
        )
    published.verify()
    manifest = published.manifest
    made = {
        CARD: card(said).encode(),
        CROISSANT: (json.dumps(croissant(said), indent=1, ensure_ascii=False) + "\n").encode(),
        MANIFEST: manifest.text.encode(),
    }
    return Release(said.name, manifest, {**{name: published.directory / name for name in manifest.files}, **made})


def release_in(folder: Path) -> Release:
    """The release in a folder that `write_release` wrote. Its card may have been edited since; everything else is as it was.

    Raises:
        StoreError: the folder is none, or a file is missing, altered or foreign.
    """
    manifest = Manifest.read(folder)
    missing = [f"{name}: missing" for name in BESIDE if not (folder / name).is_file()]
    own = tuple(f"{name}: not in the manifest" for name in BESIDE)
    if faults := [*missing, *(fault for fault in payload_faults(folder, manifest) if fault not in own)]:
        raise StoreError(f"{folder} is not what its manifest says:\n  " + "\n  ".join(faults))
    return Release(str(folder), manifest, {name: folder / name for name in (*manifest.files, *BESIDE)})


def write_release(release: Release, out: Path) -> None:
    """Write a release into a new folder, which ``datasets.load_dataset`` opens.

    Raises:
        ConfigError: the folder is not empty, or cannot be made.
        StoreError: a file of the store changed meanwhile; nothing is written.
    """

    def write(work: Path) -> None:
        for name, content in release.files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            with WrittenFile(work / name) as file:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    with content.open("rb") as source:
                        shutil.copyfileobj(source, file, BLOCK)
        release_in(work)

    whole(out, write)
