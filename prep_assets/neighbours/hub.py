"""A release as a data set of the Hugging Face Hub: one commit, on top of the one that was looked at."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from prep_assets.assets.workspace import Workspace
from prep_assets.disk.blocks import BLOCK
from prep_assets.disk.written import WrittenFile
from prep_assets.errors import ConfigError, PrepAssetsError, SourceUnavailable, StoreError
from prep_assets.exports.registry import whole
from prep_assets.neighbours.card import UNKNOWN, card
from prep_assets.neighbours.croissant import croissant
from prep_assets.neighbours.description import describe
from prep_assets.stores.bucket import error_text
from prep_assets.stores.manifest import MANIFEST, Manifest, payload_faults

_GIVEN = {".gitattributes"}
"""What the Hub itself puts into a new repository."""
_CHANGED = 412
"""The status of a commit whose parent is no longer the latest."""
CARD, CROISSANT = "README.md", "croissant.json"
BESIDE = (CARD, CROISSANT, MANIFEST)
"""What a release has beside the files of the store."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did: the latest commit afterwards, and which files are gone."""

    commit: str
    url: str
    removed: tuple[str, ...]


def licence_of(release: Release) -> str:
    """What the card says; ``unknown`` where it says nothing."""
    match = re.match(r"---\n(.*?)^---$", release.content(CARD).decode(), re.DOTALL | re.MULTILINE)
    found = (yaml.safe_load(match[1]) or {}).get("license") if match else None
    return ", ".join(found) if isinstance(found, list) else str(found or UNKNOWN)


def push(release: Release, repository: str, *, private: bool = False, api: Any = None) -> Pushed:
    """Make a repository hold a release, and nothing that an earlier push put there.

    Args:
        repository: ``owner/name`` of a data set; it is created if missing.
        api: a `huggingface_hub.HfApi`; by default one with the token that its command line stored, or of ``HF_TOKEN``.

    Raises:
        ConfigError: the name means nothing, or the repository holds what no push put there.
        StoreError: a file is no longer what the manifest says, or the repository was changed meanwhile; nothing was uploaded.
        SourceUnavailable: the Hub does not answer, or says no.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from huggingface_hub.errors import HTTPError as NoAnswer  # type: ignore[attr-defined]

    try:
        return _push(release, repository, private, api or HfApi())
    except PrepAssetsError:
        raise
    except HFValidationError as error:
        raise ConfigError(f"{repository!r} is not the name of a data set on the Hub, owner/name: {error}") from None
    except (OSError, ValueError, NoAnswer) as error:  # what huggingface_hub raises derives from these
        if isinstance(error, HfHubHTTPError) and error.response.status_code == _CHANGED:
            raise StoreError(
                f"{repository} was changed by somebody else meanwhile; nothing was uploaded. Look at it, and push again"
            ) from None
        text = re.sub(r"hf_\w+", "hf_…", error_text(error))
        raise SourceUnavailable(
            f"{repository}: {text}. Look at the name, the network and the token (hf auth whoami), then try again"
        ) from None


def _push(release: Release, repository: str, private: bool, api: Any) -> Pushed:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    additions = [CommitOperationAdd(name, content) for name, content in release.files.items()]
    _compare(release, additions)
    api.create_repo(repository, repo_type="dataset", private=private, exist_ok=True)
    found = api.repo_info(repository, repo_type="dataset")
    if private and not found.private:
        raise ConfigError(f"{repository} is public already. Make it private on the Hub, or push to another one")
    head = found.sha
    there = set(api.list_repo_files(repository, repo_type="dataset", revision=head))
    before = _before(api, repository, head) if MANIFEST in there else set[str]()
    foreign = there - before - _GIVEN
    if foreign and not before:
        raise ConfigError(
            f"{repository} holds {len(foreign):,} files that no push put there, for example {min(foreign)}. Push to a repository of its own"
        )
    removed = sorted(there & before - set(release.files))
    done = api.create_commit(
        repository,
        [*additions, *(CommitOperationDelete(name, is_folder=False) for name in removed)],
        commit_message=f"{release.manifest.asset} {release.manifest.content_hash[:12]}",
        repo_type="dataset",
        parent_commit=head,
    )
    return Pushed(done.oid, str(done.commit_url), tuple(removed))


def _compare(release: Release, additions: list[Any]) -> None:
    """What is about to be uploaded, as it was read for that, with the manifest."""
    for each in additions:
        entry = release.manifest.files.get(each.path_in_repo)
        if entry is not None and each.upload_info.sha256.hex() != entry["sha256"]:
            raise StoreError(f"{release.where}: {each.path_in_repo} is not what the manifest says. Nothing was uploaded")


def _before(api: Any, repository: str, head: str) -> set[str]:
    """Files that an earlier push put into the repository."""
    path = Path(api.hf_hub_download(repository, MANIFEST, repo_type="dataset", revision=head))
    try:
        return {*Manifest.parse(path.read_bytes(), f"{repository}/{MANIFEST}").files, *BESIDE}
    except StoreError:  # another program's
        return set()


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
    description, published = describe(workspace, asset, partition)
    if not description.tables:
        raise ConfigError(
            f"{description.name} has neither Parquet nor JSON lines in it, which is what other tools read. Publish an export of it:\n"
            f"  exports: {{hub: {{from: {asset}, to: hf_parquet}}}}"
        )
    published.verify()
    manifest = published.manifest
    made = {
        CARD: card(description).encode(),
        CROISSANT: (json.dumps(croissant(description), indent=1, ensure_ascii=False) + "\n").encode(),
        MANIFEST: manifest.text.encode(),
    }
    return Release(description.name, manifest, {**{name: published.directory / name for name in manifest.files}, **made})


def release_in(folder: Path) -> Release:
    """The release in a folder that `write_release` wrote. Its card may have been edited since; everything else is as it was.

    Raises:
        StoreError: the folder is not a release, or a file is missing, altered or foreign.
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
