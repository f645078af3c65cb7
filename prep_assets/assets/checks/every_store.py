"""What every store is checked for: its files and its recipe; and what the other checks share."""

from __future__ import annotations

from collections.abc import Iterator

from prep_assets.assets.commands import materialize_command
from prep_assets.assets.graph import EVERY
from prep_assets.assets.previews.stores import streams_of
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES, Family
from prep_assets.errors import StoreError
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.manifest import build_key
from prep_assets.stores.published import KEY_LENGTH, Published
from prep_assets.stores.tokens import TokenStore, open_tokens


def integrity(workspace: Workspace, published: Published) -> Verdict:
    manifest = published.manifest
    numbers = {"files_checked": len(manifest.files), "bytes_checked": sum(entry["bytes"] for entry in manifest.files.values())}
    try:
        published.verify()
        if (
            build_key(manifest.recipe) != manifest.build_key
            or published.directory.name.partition("-")[0] != manifest.build_key[:KEY_LENGTH]
        ):
            raise StoreError(
                f"{published.directory}/manifest.json: its recipe is not what its build key {manifest.build_key[:KEY_LENGTH]} was made of"
            )
    except StoreError as error:
        return Verdict(
            False,
            f"{error}\nBuild it again: {materialize_command(manifest.asset, manifest.partition)}",
            numbers,
            Worst("files", str(error)),
        )
    return Verdict(True, f"{len(manifest.files):,} files have the size and sha256 of the manifest", numbers)


def family_of(workspace: Workspace, published: Published) -> Family:
    """The configuration that a store was made from."""
    return workspace.family(FAMILIES[EVERY[published.manifest.asset].family])


def open_streams(published: Published) -> dict[str, TokenStore]:
    names = streams_of(published.manifest.asset, published.manifest.partition)
    return {name: open_tokens(published.directory, name) for name in names if (published.directory / f"{name}.index").is_dir()}


def together(verdicts: Iterator[Verdict]) -> Verdict:
    """Several verdicts as one: the first that fails, else their figures added up."""
    found = list(verdicts)
    numbers: dict[str, float] = {}
    for verdict in found:
        for key, value in verdict.numbers.items():
            numbers[key] = numbers.get(key, 0) + value
    failed = next((verdict for verdict in found if not verdict.passed), None)
    if failed is not None:
        return Verdict(False, failed.summary, numbers, failed.worst)
    return Verdict(True, "; ".join(verdict.summary for verdict in found), numbers)
