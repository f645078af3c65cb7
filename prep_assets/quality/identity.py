"""Tokenization identity of conversations: the tokens are those of the render, and its control tokens are those that the template wrote.

Every row is decoded and compared with a fresh render, and its control tokens are counted: as many as the render shows, less those that somebody
typed into the content. Some rows are tokenized again by transformers' way, the whole render at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.quality.verdict import Verdict, Worst
from prep_assets.tokenization.vocabulary import Vocabulary

REFERENCE_FIRST, REFERENCE_EVERY = 200, 50
"""The first rows, and after them every so many, are tokenized again as a whole."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One record.

    Attributes:
        id: its record id.
        ids: its token ids.
        text: a fresh render of it.
        controls: control tokens that the template wrote.
        typed: control tokens that the content holds as text.
        whole: whether nothing of it was cut off by truncation.
    """

    id: str
    ids: npt.NDArray[np.integer[Any]]
    text: str
    controls: int
    typed: int
    whole: bool = True


def prove_identity(rows: Iterable[Conversation], vocabulary: Vocabulary) -> Verdict:
    """Check every row; the verdict shows the first that fails."""
    control = np.array(sorted(vocabulary.control.values()), np.int64)
    numbers = {"rows_decoded": 0, "rows_tokenized_again": 0, "rows_cut": 0, "control_tokens_in_content": 0}
    for number, row in enumerate(rows):
        numbers["control_tokens_in_content"] += row.typed
        if not row.whole:
            numbers["rows_cut"] += 1
            continue
        fault = _decoded(row, vocabulary) or _controls(row, control)
        numbers["rows_decoded"] += 1
        if fault is None and not row.typed and (number < REFERENCE_FIRST or number % REFERENCE_EVERY == 0):
            numbers["rows_tokenized_again"] += 1
            fault = _again(row, vocabulary)
        if fault is not None:
            return Verdict(False, f"{row.id}: {fault}", numbers, Worst(row.id, fault, tuple(row.ids.tolist())))
    summary = f"{numbers['rows_decoded']:,} rows decode to their render, {numbers['rows_tokenized_again']:,} equal the reference's ids"
    return Verdict(True, summary, numbers)


def _decoded(row: Conversation, vocabulary: Vocabulary) -> str | None:
    if vocabulary.token_bytes is None:
        return None
    found = vocabulary.decode(row.ids)
    if vocabulary.prefix_space != "never" and not row.text.startswith(" "):
        found = found.removeprefix(" ")
    if found == row.text:
        return None
    at = next((i for i, (a, b) in enumerate(zip(found, row.text, strict=False)) if a != b), min(len(found), len(row.text)))
    low = max(0, at - 20)
    return f"decodes to …{found[low : at + 40]!r}…, the render is …{row.text[low : at + 40]!r}… (character {at:,})"


def _controls(row: Conversation, control: npt.NDArray[np.int64]) -> str | None:
    found = int(np.isin(row.ids, control).sum())
    return None if found == row.controls else f"{found} control tokens, the template writes {row.controls}"


def _again(row: Conversation, vocabulary: Vocabulary) -> str | None:
    vocabulary.backend.encode_special_tokens = False
    ids = vocabulary.backend.encode(row.text, add_special_tokens=False).ids
    return (
        None
        if ids == row.ids.tolist()
        else f"{len(row.ids):,} ids differ from the {len(ids):,} of the reference tokenizer for the whole render"
    )
