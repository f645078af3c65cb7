"""The one idea that masks and their second derivation share, where an answer begins, misled in both at once: who notices.

Each template of the matrix is held against the published format of its model, which is written down as a pattern, and against generation tags. `count` is
for docs/masks.md: ``python -m prep_assets_tests.text.test_misled_borders FOLDER`` with the folder of real data.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prep_assets.caches import CACHES
from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import Expected, MaskOptions, derive
from prep_assets.proofs.rebuilt import Shape
from prep_assets.samples import Sample
from prep_assets.text.template import Borders as First
from prep_assets.text.template import ChatTemplate
from prep_assets_tests.text.matrix import cells
from prep_assets_tests.text.matrix.chats import KINDS, Kind

Start = Callable[[str, int, int], int]
MISLED: Mapping[str, Start] = {
    "after all that the template writes": lambda text, low, first: first,
    "right after the turn before": lambda text, low, first: low,
}
"""Render, end of the turn before and beginning of an answer's own texts → where the answer is taken to begin."""


def mislead(patch: pytest.MonkeyPatch, start: Start) -> None:
    """Let both derivations begin answers there."""

    def first(borders: Any, chat: Any, before: Any, block: Any) -> int:
        return start(chat.text, before.end if before else 0, block.start)

    def second(shape: Any, before: Any, block: Any) -> int:
        return start(shape.text, before.end if before else 0, block.start)

    patch.setattr(First, "start", first)
    patch.setattr(Shape, "_start", second)
    CACHES["rebuilders"].clear()


def noticed(entry: cells.Entry, kind: Kind, patch: pytest.MonkeyPatch, start: Start) -> str:
    """Who sees that the rule is wrong; ``""`` where masks stay right all the same, or the chat is refused in any case."""
    sound = cells.cell(entry, kind)
    if sound.reason or sound.fault:
        return ""
    vocabulary, _ = cells._encoder(entry.model)
    plain = ChatTemplate(entry.name, entry.source, vocabulary.special, {}, tuple(sorted(vocabulary.control)), entry.model.image)
    template = replace(plain, training=entry.tagged)
    right = derive(kind.sample, MaskOptions(), template)
    with patch.context() as patched:
        mislead(patched, start)
        wrong = _expected(kind.sample, plain)
        found = cells.cell(replace(entry, tagged=""), kind)
        by_tags = right.tagged and _expected(kind.sample, template) is None
    by_format = bool(found.reason or found.fault)
    if wrong == right.expected:  # the prefix property is not misled: a build that is differs from it
        return "tags object to a mask that is right" if by_tags else "prefix" if by_format else ""
    return {(True, True): "both", (True, False): "format", (False, True): "tags"}.get((by_format, by_tags), "nobody")


def _expected(sample: Sample, template: ChatTemplate) -> tuple[Expected, ...] | None:
    try:
        return derive(sample, MaskOptions(), template).expected
    except CheckFailed:
        return None


def count(entries: Mapping[str, cells.Entry], start: Start, patch: pytest.MonkeyPatch) -> Counter[str]:
    """How many cells of the matrix, by who notices."""
    return Counter(who for entry in entries.values() for kind in KINDS.values() if (who := noticed(entry, kind, patch, start)))


@pytest.mark.parametrize("misled", MISLED)
def test_nobody_is_misled_without_notice(monkeypatch: pytest.MonkeyPatch, misled: str) -> None:
    chosen = {name: entry for name, entry in cells.shipped().items() if name in ("glm4", "llama3", "plain")}
    found = count(chosen, MISLED[misled], monkeypatch)
    wanted = {"after all that the template writes": {"prefix": 18}, "right after the turn before": {"prefix": 28}}
    assert found == wanted[misled]


if __name__ == "__main__":
    everything = {f"{name}, shipped": entry for name, entry in cells.shipped().items()} | cells.published(Path(sys.argv[1]))
    for name, start in MISLED.items():
        print(name, sorted(count(everything, start, pytest.MonkeyPatch()).items()), flush=True)
