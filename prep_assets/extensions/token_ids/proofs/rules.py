"""Rules about rows that JSON Schema cannot say, and about columns, by the names that definitions in `formats` give them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from prep_assets.proofs.formats import Format, definition_of
from prep_assets.proofs.row_rules import once, parts_of_row
from prep_assets.proofs.source_fields import WEIGHTS
from prep_assets.samples import Row

# Rows of token ids, value by value.


class _Tokens(NamedTuple):
    """Ids of a row, its masks (that of a completion first, ``own`` of them), its labels and its attention mask; `None` for what it does not have."""

    ids: list[int]
    masks: list[Sequence[float]]
    own: int
    labels: list[int] | None
    attention: list[int] | None

    @property
    def uneven(self) -> bool:
        return any(each is not None and len(each) != len(self.ids) for each in (*self.masks, self.labels, self.attention))

    @property
    def trained(self) -> list[bool] | None:
        return [*map(all, zip(*self.masks, strict=False))] if self.masks else None


def _read(row: Row, options: Row) -> _Tokens:
    found: list[Any] = [row.get(str(options[f"{each}_key"])) for each in ("ids", "prompt_ids", "completion_ids", "labels")]
    ids, prompt, completion, labels = found
    masks = [row[key] for key in options["mask_keys"] if row.get(key) is not None]
    attention, own = None if "attention_mask" in options["mask_keys"] else row.get("attention_mask"), len(masks)
    if ids is None and completion is not None:
        ids, before = [*prompt, *completion], [0] * len(prompt)
        masks = [before + [1] * len(completion), *(before + mask if len(mask) == len(completion) else mask for mask in masks)]
    return _Tokens(ids, masks, own, labels, attention)


@once
def _tokens(row: Row, format: Format) -> _Tokens:
    return _read(row, format.options)


def tokens_of_row(row: Row, options: Row, trains: Callable[[], list[bool]] | None) -> tuple[list[int], list[float]]:
    """Return ids and weights of a row; `trains`: which tokens are trained, where neither labels nor masks say it."""
    found, shifted = _read(row, {**definition_of("tokenized")["x-options"], **options}), options.get("shifted")
    ids, masks, labels = found.ids, found.masks, found.labels
    if trains is not None and not found.own and labels is None and not shifted:
        masks = [*masks, trains()]
    weights = [math.prod(map(float, at)) for at in zip(*masks, strict=True)] if masks else [1.0] * len(ids)
    if labels is not None and not found.own:
        weights = [0.0 if label == -100 else weight for label, weight in zip(labels, weights, strict=True)]
    shown = [at for at in range(len(ids)) if found.attention is None or found.attention[at]]
    if not shifted:
        return [ids[at] for at in shown], [weights[at] for at in shown]
    read, following = [ids[at] for at in shown], [0.0, *(weights[at] for at in shown)]  # a label is the token behind its own
    if labels is not None and shown and following[-1]:
        return [*read, labels[shown[-1]]], following
    return read, following[:-1]


def tokens_of_pair(row: Row, options: Row, trains: Callable[[], list[bool]] | None) -> tuple[list[int], list[float]]:
    """Return ids and weights of a context and its completion."""
    return tokens_of_row(row, {"prompt_ids_key": options["context_key"], "completion_ids_key": options["completion_key"]}, trains)


def uneven_tokens(row: Row, format: Format) -> bool:
    """A mask or labels are of more or fewer tokens than there are ids."""
    return _tokens(row, format).uneven


def no_mask(row: Row, format: Format) -> bool:
    """Neither masks nor labels say which tokens are trained."""
    tokens = _tokens(row, format)
    return tokens.trained is None and tokens.labels is None


def masks_disagree(row: Row, format: Format) -> bool:
    """Masks and labels train different tokens, unless labels are of all; or the chat beside them has weights."""
    trained, labels, uneven = (tokens := _tokens(row, format)).trained, tokens.labels, tokens.uneven
    by_label = [label != -100 for label in labels or ()]
    weighed = any(each.get(key) is not None for each in parts_of_row(row, format)[1:] for key in WEIGHTS)
    return weighed or (trained is not None and labels is not None and trained != by_label and not all(by_label) and not uneven)


@once
def _wrong_labels(row: Row, format: Format) -> tuple[bool, bool]:
    """Return whether a trained token has another label than its id, and whether each has that of the next one."""
    tokens = _tokens(row, format)
    ids, trained, labels, attention, uneven = tokens.ids, tokens.trained, tokens.labels, tokens.attention, tokens.uneven
    if labels is None or uneven:
        return False, False
    trained = [label != -100 for label in labels] if trained is None else trained
    shown = [*zip(ids, labels, trained, attention or [1] * len(ids), strict=True)]
    shown = [each for each in shown if each[-1]]
    by = int(format.options["shifted"])
    right = [shown[at][1] == shown[at + by][0] for at in range(len(shown) - by) if shown[at][2]]
    ahead = [first[1] == second[0] for first, second in pairwise(shown) if first[2]]
    return not all(right), not by and bool(ahead) and all(ahead)


def labels_differ(row: Row, format: Format) -> bool:
    """A trained token has the label of another one."""
    return _wrong_labels(row, format) == (True, False)


def labels_shifted(row: Row, format: Format) -> bool:
    """Labels are those of the next token, and the options do not say so."""
    return _wrong_labels(row, format) == (True, True)


def all_hidden(row: Row, format: Format) -> bool:
    """The attention mask hides all tokens."""
    attention = _tokens(row, format).attention
    return attention is not None and not any(attention)


def attention_hole(row: Row, format: Format) -> bool:
    """The attention mask hides a token between others."""
    attention = _tokens(row, format).attention
    return attention is not None and "0" in "".join(map(str, attention)).strip("0")


def trained_padding(row: Row, format: Format) -> bool:
    """A token is trained that the attention mask hides."""
    trained, labels, attention = (tokens := _tokens(row, format)).trained, tokens.labels, tokens.attention
    by = [label != -100 for label in labels or ()] if trained is None else trained
    return attention is not None and any(train and not shown for train, shown in zip(by, attention, strict=False))


def several_examples(row: Row, format: Format) -> bool:
    """A row holds several examples, as lengths, positions or numbers in its attention mask say."""
    positions, attention = row.get("position_ids"), _tokens(row, format).attention
    return len(row.get("seq_lengths") or ()) > 1 or (positions or []) != [*range(len(positions or ()))] or max(attention or [0]) > 1
