"""The examples of a domain in columns, before verdicts drop any: what judges all of a domain's rows reads them so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import xxhash

from prep_assets.config.family import Chat, Domain, Family
from prep_assets.config.models import FAMILIES, Eval, Pretrain, Sft
from prep_assets.data.quarantine import Quarantine, Refusal
from prep_assets.errors import Refused
from prep_assets.extensions.quality.steps import Examples
from prep_assets.pipeline.asset import REASONING
from prep_assets.pipeline.documents import document_text
from prep_assets.pipeline.examples import Item, Reading, Source, asked_digest, content_digest, held_out
from prep_assets.pipeline.sources import unrendered_reasoning
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Example, Group
from prep_assets.schemas.fields import texts_of

BLOCK_BYTES = 1 << 18
"""Of a file, for one block of examples, whose columns of characters and words then fit into a processor's cache."""


def sides_recipe(options: Family) -> dict[str, Any]:
    """What decides which examples of a family are held out, see `is_held_out`."""
    reasoning = REASONING if isinstance(options, Chat) and not isinstance(options, Sft) else ()
    return {"test_fraction": options.of_some("test_fraction"), **{name: getattr(options, name) for name in reasoning}}


def is_held_out(options: Family, item: Item, in_test: bool) -> bool | None:
    """Whether an example is on the held-out side, as the assets of its family decide; `None` for one that they refuse, or that has images.

    Args:
        in_test: whether its file is one of the domain's `test_files`.
    """
    fraction = options.of_some("test_fraction")
    if in_test or not fraction or isinstance(options, Eval):
        return in_test or isinstance(options, Eval)
    if isinstance(options, Sft):
        return held_out(content_digest(item.record), fraction)
    try:
        if isinstance(options, Pretrain):
            return held_out(xxhash.xxh3_128_digest(document_text(item.example).encode()), fraction)
        example: Example = item.example
        if isinstance(options, Chat) and not isinstance(example, Group):
            example = unrendered_reasoning(options).read(example)
        return held_out(asked_digest(options, example), fraction)
    except Refused:
        return None


class Unwritten(Quarantine):
    """A quarantine that only counts: what reads the domain next puts the same records into its own."""

    def __init__(self) -> None:
        super().__init__(Path())

    def write(self, rejection: Refusal) -> None:
        """Count a rejection."""
        self._counts[f"{rejection.stage}/{rejection.reason}"] += 1


Blocks = Iterator[tuple[Examples, Sequence[Item], bool]]
"""Examples in columns, their records, and whether their file is held out."""


def source_to_judge(workspace: Workspace, family: str, name: str) -> Source:
    """The rows of a domain before quality steps drop any."""
    kind, options = FAMILIES[family], workspace.family(FAMILIES[family])
    return replace(Source.of(workspace, kind, name, gives=options.form_of(name)), refuses=())


def examples_of(reading: Reading, doing: str, halved: bool = False, quarantine: Quarantine | None = None) -> Blocks:
    """Yield the examples of a domain, in blocks or halves of them."""
    for block, in_test in reading.examples(doing, quarantine or Unwritten(), block_bytes=BLOCK_BYTES):
        for items in (block[: len(block) // 2], block[len(block) // 2 :]) if halved else (block,):
            examples, rows = [item.example for item in items], [item.record.payload for item in items]
            yield Examples([item.id for item in items], examples, solutions_of(reading.domain, rows)), items, in_test


WITH_SOLUTIONS = ("gsm8k", "gsm8k_prompt")


def solutions_of(domain: Domain, rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """See `Examples`."""
    if domain.schema_name not in WITH_SOLUTIONS:
        return ()
    return [text for row in rows for text in texts_of(row, domain.options.get("answer_key", "answer"))]
