"""Corruptions of contrastive rows that their checks must catch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prep_assets.extensions.lines.mutations import blank, field, half_as_long, longer, of_next_line, row_lost, with_fields
from prep_assets.proofs.mutations import Change, Mutation, mutate_one

MATCH, CONTRASTS = "source_match", "contrast_sanity"


def _texts(name: str, change: Callable[[list[str], Mapping[str, Any]], list[str]]) -> Change:
    """Mutate the texts of one side of a contrastive row that has it."""
    return mutate_one(lambda line: with_fields(line, **{name: change(line.stored[name], line.stored)}) if line.stored.get(name) else None)


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a query altered", MATCH, field("query", longer)),
    Mutation("queries of the next row", MATCH, of_next_line("query")),
    Mutation("positives of the next row", MATCH, of_next_line("positives")),
    Mutation("negatives of the next row", MATCH, of_next_line("negatives")),
    Mutation("a negative lost", MATCH, _texts("negatives", lambda texts, row: texts[:-1])),
    Mutation("a positive truncated", MATCH, _texts("positives", lambda texts, row: [half_as_long(texts[0]), *texts[1:]])),
    Mutation("a row invented", MATCH, row_lost),
    Mutation("an empty query", CONTRASTS, field("query", blank)),
    Mutation("an empty positive", CONTRASTS, _texts("positives", lambda texts, row: [" ", *texts[1:]])),
    Mutation("no positive", CONTRASTS, _texts("positives", lambda texts, row: [])),
    Mutation("a positive among the negatives", CONTRASTS, _texts("negatives", lambda texts, row: [*texts, row["positives"][0]])),
    Mutation("a negative twice", CONTRASTS, _texts("negatives", lambda texts, row: [*texts, texts[0]])),
    Mutation("the query among the positives", CONTRASTS, _texts("positives", lambda texts, row: [*texts, row["query"]])),
)
