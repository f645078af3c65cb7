"""A release as a data set of the Hugging Face Hub: one commit, on top of the one that was looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from prep_assets.errors import ConfigError, PrepAssetsError, SourceUnavailable, StoreError
from prep_assets.neighbours.card import UNKNOWN
from prep_assets.neighbours.release import BESIDE, CARD, Release
from prep_assets.stores.bucket import said
from prep_assets.stores.manifest import MANIFEST, Manifest

_GIVEN = {".gitattributes"}
"""What the Hub itself puts into a new repository."""
_CHANGED = 412
"""The status of a commit whose parent is no longer the latest."""


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
        repository: ``owner/name`` of a data set; it is made where there is none.
        api: a `huggingface_hub.HfApi`; by default one with the token that its command line stored, or of ``HF_TOKEN``.

    Raises:
        ConfigError: the name means nothing, or the repository holds what no push put there.
        StoreError: a file is no longer what the manifest says, or somebody else changed the repository meanwhile; nothing was changed.
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
        text = re.sub(r"hf_\w+", "hf_…", said(error))
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
