"""What was recorded of stores elsewhere: manifests of releases and of commits on the Hub, and files that name stores by their content hashes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError, SourceUnavailable, StoreError, error_text
from prep_assets.stores.manifest import MANIFEST, Manifest
from prep_assets.stores.verification import BLOCK
from prep_assets.stores.version_folders import CONTENT_LENGTH

_HASHES = re.compile(rb"[0-9a-f]{%d,64}" % CONTENT_LENGTH)
"""Content hashes, as runs record them: all 64 digits; 32, as MLflow's digests; and the few that versions and messages have."""


def files_of(paths: Iterable[Path], without: Path) -> list[Path]:
    """The files among and below paths, sorted, except those below the folder `without`.

    Raises:
        ConfigError: a path does not exist.
    """
    files = list[Path]()
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file or folder to look in")
        files += sorted(path.rglob("*")) if path.is_dir() else [path]
    return [file for file in files if file.is_file() and without.resolve() not in file.resolve().parents]


def manifests_of(files: Iterable[Path]) -> Iterator[tuple[str, Manifest]]:
    """File and manifest of each release among files."""
    for file in files:
        if file.name == MANIFEST and (found := manifest_in(file)):
            yield str(file), found


def manifest_in(file: Path) -> Manifest | None:
    """The manifest that a file holds; `None` for one of another program."""
    try:
        return Manifest.parse(file.read_bytes(), str(file))
    except StoreError:
        return None


def names_in(files: Iterable[Path], contents: Collection[str]) -> Iterator[tuple[str, str]]:
    """File and content hash, wherever a file that is no manifest names one of these hashes, or a version that has it."""
    wanted = {content[:CONTENT_LENGTH].encode(): content.encode() for content in contents}
    for file in (file for file in files if file.name != MANIFEST):
        named, kept = set[bytes](), b""
        try:
            with file.open("rb") as opened:
                while block := opened.read(BLOCK):
                    for match in _HASHES.finditer(kept + block):
                        is_hash = match[0] in wanted or len(match[0]) >= 32
                        if is_hash and wanted.get(short := match[0][:CONTENT_LENGTH], b"").startswith(match[0]):
                            named.add(short)
                    kept = (kept + block)[-64:]  # a hash may lie across two blocks
        except OSError as error:
            raise ConfigError(
                f"{file} cannot be read ({error.strerror or error}), so it may name any of them. Leave it out, or let it be read"
            ) from error
        yield from ((str(file), wanted[each].decode()) for each in sorted(named))


def commits_of(repositories: Sequence[str], api: Any = None) -> Iterator[tuple[str, Manifest]]:
    """``owner/name@commit`` and manifest of each commit on the Hub that has one.

    Args:
        api: a `huggingface_hub.HfApi`; by default one with the token stored by its command line, or ``HF_TOKEN``.

    Raises:
        SourceUnavailable: the Hub is unreachable, or rejects the request.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import EntryNotFoundError
    from huggingface_hub.errors import HTTPError as NoAnswer  # type: ignore[attr-defined]

    api = api or HfApi()
    for repository in repositories:
        try:
            for commit in api.list_repo_commits(repository, repo_type="dataset"):
                with suppress(EntryNotFoundError):  # a commit before the first push
                    path = api.hf_hub_download(repository, MANIFEST, repo_type="dataset", revision=commit.commit_id)
                    if manifest := manifest_in(Path(path)):
                        yield f"{repository}@{commit.commit_id}", manifest
        except (OSError, ValueError, NoAnswer) as error:  # base classes of what huggingface_hub raises
            said = re.sub(r"hf_\w+", "hf_…", error_text(error)).rstrip(".")
            raise SourceUnavailable(f"{repository}: {said}. Look at the name, the network and the token") from None
