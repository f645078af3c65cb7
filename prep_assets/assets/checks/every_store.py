"""What every store is checked for: its files and its recipe; and what the other checks share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prep_assets.assets.commands import build_command
from prep_assets.assets.stage import Check, Store
from prep_assets.errors import StoreError
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.manifest import MANIFEST, build_key
from prep_assets.stores.signing import described
from prep_assets.stores.version_folders import KEY_LENGTH, name_of

MASKED = "Trained tokens decode to exactly the assistant's texts and their stop token, on every row; derived without the code that made the mask."
IDENTITY = "Every row's tokens decode to a fresh render of its source; its control tokens are those that the template wrote, none typed by anybody."
"""What `mask_alignment` and `tokenization_identity` say of conversations."""


def integrity(store: Store) -> Verdict:
    """The files are those of the manifest, and its recipe is the one that its build key was made of."""
    manifest = store.manifest
    numbers = {"files_checked": len(manifest.files), "bytes_checked": sum(entry["bytes"] for entry in manifest.files.values())}
    try:
        store.published.verify()
        _check_place(store)
    except StoreError as error:
        remedy = f"Build it again: {build_command(manifest.asset, manifest.partition)}"
        return Verdict(False, f"{error}\n{remedy}", numbers, Worst("files", str(error)))
    signed = f", which is {described(manifest.signature)}" if manifest.signature else ""
    return Verdict(True, f"{len(manifest.files):,} files have the size and sha256 of the manifest{signed}", numbers)


INTEGRITY = Check(
    "file_hashes", "Every file of the store has the size and sha256 that its manifest says, and there is no other.", integrity
)


def _check_place(store: Store) -> None:
    """A store is what its recipe says, and stands where its manifest says."""
    manifest, directory = store.manifest, store.directory.resolve()
    where = f"{store.directory}/{MANIFEST}"
    if build_key(manifest.recipe) != manifest.build_key:
        raise StoreError(f"{where}: its recipe is not what its build key {manifest.build_key[:KEY_LENGTH]} was made of")
    name = name_of(manifest.build_key, manifest.content_hash)
    if directory.name != name and not directory.name.startswith(f"{name}-"):
        raise StoreError(f"{where}: it is of version {name}, in the folder {directory.name}")
    place = store.workspace.place(manifest.asset, manifest.partition)
    if directory.parent != place.shelf.versions.resolve():
        raise StoreError(f"{where}: it is a store of {place.label}, in {directory.parent}")


def cuts_counted(store: Store, proven: Verdict) -> Verdict:
    """A verdict on conversations, which fails where truncation took other tokens than the manifest counts."""
    counted, found = (int(each.get("tokens_cut_away", 0)) for each in (store.manifest.counts, proven.numbers))
    if not proven.passed or counted == found:
        return proven
    detail = f"truncation took {found:,} tokens, the manifest counts {counted:,}"
    return Verdict(False, detail, proven.numbers, Worst("counts", detail))


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Several verdicts as one: the first that fails, else their figures added up."""
    found = list(verdicts)
    numbers = added(verdict.numbers for verdict in found)
    failed = next((verdict for verdict in found if not verdict.passed), None)
    if failed is not None:
        return Verdict(False, failed.summary, numbers, failed.worst)
    return Verdict(True, "; ".join(verdict.summary for verdict in found), numbers)


def added(figures: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Figures of several parts as those of the whole."""
    numbers: dict[str, float] = {}
    for each in figures:
        for key, value in each.items():
            numbers[key] = numbers.get(key, 0) + value
    return numbers
