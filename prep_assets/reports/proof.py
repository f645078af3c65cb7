"""The two derivations of a record's mask, stretch by stretch: what the store trains, and what its source says must be trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from prep_assets.assets.checks.conversations import Chats, Sides
from prep_assets.assets.checks.merged import merged_streams
from prep_assets.assets.graph import store_of
from prep_assets.assets.stage import Store
from prep_assets.assets.workspace import Workspace
from prep_assets.errors import PrepAssetsError
from prep_assets.proofs.mask import Row, prove_masks, trained_runs
from prep_assets.reports.opened import tokens_of
from prep_assets.reports.rows import Origin
from prep_assets.stores.published import Published
from prep_assets.tokenization.vocabulary import Vocabulary

MOST_CHARACTERS = 2000
"""Characters of a stretch that a page holds."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """One trained stretch of a record, by both derivations.

    Attributes:
        start, end: its tokens in the record; -1 where the store trains none.
        first: what the trained tokens of the store decode to, with their weight.
        second: what the source says must be trained, with its weight.
    """

    start: int
    end: int
    first: tuple[str, float] | None
    second: tuple[str, float] | None


@dataclass(frozen=True, slots=True)
class Proof:
    """Both derivations of one record. `fault` says how they differ, and is empty where they agree."""

    stretches: tuple[Stretch, ...]
    fault: str


def proofs(
    workspace: Workspace, published: Published, origins: Iterable[Origin], vocabulary: Vocabulary
) -> tuple[dict[Origin, Proof], list[str]]:
    """The proofs of records, and why some have none: a source changed, say. Sources are read again for them."""
    found: dict[Origin, Proof] = {}
    missing: list[str] = []
    for (domain, stream), records in sorted(_grouped(origins).items()):
        try:
            for number, row in _rows(workspace, published, domain, stream, records):
                found[Origin(domain, stream, number)] = prove(row, vocabulary)
        except (PrepAssetsError, LookupError, OSError) as error:
            missing.append(f"{domain or stream}: {error}")
    return found, missing


def _grouped(origins: Iterable[Origin]) -> dict[tuple[str, str], list[int]]:
    grouped: dict[tuple[str, str], set[int]] = {}
    for origin in origins:
        grouped.setdefault((origin.domain, origin.stream), set()).add(origin.record)
    return {key: sorted(records) for key, records in grouped.items()}


def _rows(workspace: Workspace, published: Published, domain: str, stream: str, records: Sequence[int]) -> Iterator[tuple[int, Row]]:
    asset = published.manifest.asset
    if asset in ("sft_packed", "sft_tokens"):
        tokens = published if asset == "sft_tokens" else tokens_of(workspace, published, domain)
        return Chats(store_of(workspace, tokens)).rows(stream, records)
    if asset == "preference_tokens_by_domain":
        return Sides(store_of(workspace, published)).rows(stream, records)
    return _merged_pairs(store_of(workspace, published), stream, records) if asset == "preference_tokens" else iter(())


def _merged_pairs(store: Store, stream: str, records: Sequence[int]) -> Iterator[tuple[int, Row]]:
    """Records of merged pairs with the answers that must be trained, which the stores of the domains know."""
    [merged] = (each for each in merged_streams(store) if each.name == stream)
    for number, name in enumerate(store.domains):
        wanted = {int(merged.asked.record[each]): each for each in records if merged.asked.part[each] == number}
        part = store_of(store.workspace, store.above(store.asset.parts, name))
        for at, row in Sides(part).rows(stream, list(wanted)) if wanted else ():
            ids, mask = (merged.store.record(wanted[at], key) for key in ("tokens", "loss_mask"))
            yield wanted[at], replace(row, ids=ids, mask=mask)


def prove(row: Row, vocabulary: Vocabulary) -> Proof:
    """Both derivations of one record, and what the check says of them."""
    runs = trained_runs(row, vocabulary)
    texts = vocabulary.decode_batch([row.ids[start:end].tolist() for start, end in runs])
    stretches = []
    for run, text, expected in zip_longest(runs, texts, row.expected):
        first = None if run is None else (text[:MOST_CHARACTERS], float(row.mask[run[0]]))
        second = None if expected is None else (expected.text[:MOST_CHARACTERS], expected.weight)
        stretches.append(Stretch(run[0] if run else -1, run[1] if run else -1, first, second))
    verdict = prove_masks([row], vocabulary)
    return Proof(tuple(stretches), verdict.worst.note if verdict.worst else "")
