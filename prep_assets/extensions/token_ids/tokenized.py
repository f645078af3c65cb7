"""``tokenized``: rows with token ids and their labels or masks, as TRL, SkyRL, unsloth, AstrAI and Cerebras' nlg hook write them.

This module does not know the tokenizer. `prep_assets.pipeline.documents` proves, when it stores the ids, that they are inside its vocabulary, encode
the text of the row, and carry their mask from the beginning of words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Floats, Ints
from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import Row, Sample, Tokenized, changed
from prep_assets.schemas.fields import LEAST, MOST, as_list, as_text, has_content, value_at, wrong_type
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import ChatFormat, label_of, offered, with_system_of

UNTRAINED = -100
"""The label of a token that is not trained."""
MASKS = ("loss_mask", "assistant_masks", "completion_mask")
ATTENTION = "attention_mask"


@schema("tokenized", gives=Sample, example={"input_ids": [65, 66, 67], "labels": [-100, 66, 67]})
def tokenized(
    *,
    ids_key: str = "input_ids",
    labels_key: str = "labels",
    mask_keys: Sequence[str] = MASKS,
    prompt_ids_key: str = "prompt_ids",
    completion_ids_key: str = "completion_ids",
    shifted: bool = False,
    text_key: str = "text",
    messages_key: str = "messages",
) -> Convert:
    """Token ids with labels or masks, stored as they are after they were proven.

    Ids are one array with labels or masks of its length, or a prompt and a completion that is trained.

    Options:
        ids_key: token ids of a whole example.
        labels_key: ids of trained tokens, -100 for others.
        mask_keys: arrays of weights; several are multiplied.
        prompt_ids_key: the prompt's token ids, in rows without `ids_key`.
        completion_ids_key: the completion's, likewise; masks may have their length.
        shifted: labels and masks are one place before their token, as a model's outputs.
        text_key: a text, control tokens written out, whose ids these must be; optional.
        messages_key: a chat whose render's ids these must be; optional.
    """
    columns = TokenColumns(ids_key, labels_key, tuple(mask_keys), prompt_ids_key, completion_ids_key, shifted, text_key, messages_key)
    return columns.sample


class TokenColumns(Struct, frozen=True):
    """The fields of rows of token ids, as the options of ``tokenized`` name them."""

    ids_key: str
    labels_key: str
    mask_keys: tuple[str, ...]
    prompt_ids_key: str
    completion_ids_key: str
    shifted: bool
    text_key: str
    messages_key: str

    def __post_init__(self) -> None:
        if ATTENTION in self.mask_keys and len(self.mask_keys) > 1:
            raise ConfigError(f"mask_keys names {ATTENTION!r}, a loss mask under Cerebras' name, which stands alone. Leave the others out")

    def sample(self, row: Row, unmasked: Floats | None = None) -> Sample:
        """The ids and weights of a row; `unmasked` are the weights of its tokens where neither labels nor masks say them.

        Raises:
            Refused: they contradict each other.
        """
        ids, prompt = _ids(row, self.ids_key, self.prompt_ids_key, self.completion_ids_key)
        weights = _weights(row, self.mask_keys, len(ids), prompt)
        labels = None if row.get(self.labels_key) is None else integers(row[self.labels_key], self.labels_key, len(ids))
        if weights is None and labels is None:
            if unmasked is None:
                keys = ", ".join(map(repr, self.mask_keys))
                raise Refused("no_mask", f"neither {self.labels_key!r} nor {keys} says which tokens are trained")
            weights = unmasked
        weights = _merge_masks_and_labels(weights, labels)
        shown = self.shown(row, weights)
        ids, weights, labels = ids[shown], weights[shown], labels if labels is None else labels[shown]
        if self.shifted:
            ids, weights, labels = _shift_right(ids, weights, labels)
        if labels is not None:
            _check_labels(labels, ids, weights, self.shifted, self.labels_key)
        _reject_packed_row(row)
        text = None if row.get(self.text_key) in (None, "") else as_text(row[self.text_key], self.text_key)
        return changed(chat_of(row, self.messages_key), tokenized=Tokenized(tuple(ids.tolist()), tuple(weights.tolist()), text))

    def shown(self, row: Row, weights: Floats) -> slice:
        """The slice of tokens that are not padding."""
        return slice(None) if ATTENTION in self.mask_keys else _unpadded(row, weights)


def _list_of(value: object, where: str, kinds: set[type], needed: str) -> Sequence[Any]:
    """`value` as an array whose elements are of the types `kinds`; `needed` names them for the error."""
    elements = as_list(value, where)
    if not set(map(type, elements)) <= kinds:
        wrong_type(next(element for element in elements if type(element) not in kinds), f"{where}[…]", needed)
    return elements


def integers(value: object, where: str, length: int | None = None) -> Ints:
    """`value` as an int64 array of `length` integers; booleans are rejected."""
    numbers = _list_of(value, where, {int}, "an integer")
    _check_length(where, len(numbers), length)
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        raise Refused("wrong_type", f"{where!r} holds a number of more than 64 bits") from None


def _as_weights(weights: Floats, where: str) -> Floats:
    if not ((weights == 0) | ((weights >= LEAST) & (weights <= MOST))).all():
        raise Refused("bad_weight", f"{where!r} holds a weight that is neither 0 nor from {LEAST:g} to {MOST:g}")
    return weights


def _ids(row: Row, whole: str, prompt: str, completion: str) -> tuple[Ints, int | None]:
    """The ids of a row, and the length of its prompt; `None` where the row has no separate prompt and completion."""
    in_parts = row.get(whole) is None and row.get(completion) is not None
    prompt_ids = integers(value_at(row, prompt), prompt) if in_parts else np.empty(0, np.int64)
    key = completion if in_parts else whole
    if not len(ids := integers(value_at(row, key), key)):
        raise Refused("empty_text", f"{key!r} has no token ids")
    return np.concatenate([prompt_ids, ids]), len(prompt_ids) if in_parts else None


def _weights(row: Row, keys: Sequence[str], length: int, prompt: int | None) -> Floats | None:
    """The product of a row's masks, one weight a token; `None` where it has neither masks nor a completion."""
    weights: Floats | None = None if prompt is None else np.repeat([0.0, 1.0], [prompt, length - prompt])
    for key in keys:
        if row.get(key) is None:
            continue
        mask = _as_weights(np.array(_list_of(row[key], key, {int, float, bool}, "a number"), np.float64), key)
        if prompt is not None and len(mask) == length - prompt:
            mask = np.concatenate([np.zeros(prompt), mask])
        _check_length(key, len(mask), length)
        weights = mask if weights is None else np.multiply(weights, mask)
    return None if weights is None else _as_weights(weights, " times ".join(keys))


def _merge_masks_and_labels(weights: Floats | None, labels: Ints | None) -> Floats:
    """The loss weight of each token. Masks and labels must train the same tokens; where labels cover every token, the masks decide."""
    if labels is None:
        assert weights is not None
        return weights
    trained: npt.NDArray[np.bool_] = labels != UNTRAINED
    if weights is None:
        return trained.astype(np.float64)
    differing = np.flatnonzero((weights != 0) != trained)
    if len(differing) and not trained.all():
        index = int(differing[0])
        raise Refused("masks_disagree", f"token {index} weighs {weights[index]:g} by its mask, and its label is {labels[index]}")
    return weights


def _unpadded(row: Row, weights: Floats) -> slice:
    """The slice of tokens that are not padding. Rejects a hole between them (``attention_hole``) and trained padding (``trained_padding``)."""
    if row.get(ATTENTION) is None:
        return slice(None)
    mask = integers(row[ATTENTION], ATTENTION, len(weights))
    if mask.min() >= 0 and mask.max() > 1:
        raise Refused("packed_row", f"{ATTENTION!r} numbers {mask.max()} examples; bring each as a row of its own")
    if not np.isin(mask, (0, 1)).all():
        raise Refused("wrong_type", f"{ATTENTION!r} holds another number than 0 and 1")
    seen = np.flatnonzero(mask)
    if not len(seen):
        raise Refused("empty_text", f"{ATTENTION!r} hides every token")
    shown = slice(int(seen[0]), int(seen[-1]) + 1)
    if len(seen) != shown.stop - shown.start:
        detail = f"{ATTENTION!r} hides a token between tokens {shown.start} and {shown.stop - 1}; no store has such a mask"
        raise Refused("attention_hole", detail)
    if (trained := np.flatnonzero(weights * (mask == 0))).size:
        raise Refused("trained_padding", f"token {trained[0]} is trained, and {ATTENTION!r} hides it")
    return shown


def _shift_right(ids: Ints, weights: Floats, labels: Ints | None) -> tuple[Ints, Floats, Ints | None]:
    """Shift weights and labels right by one, to the token that they are about. A trained last label without an id is appended to the ids."""
    if labels is not None and weights[-1]:
        ids = np.append(ids, labels[-1])
    untrained = np.array([UNTRAINED])
    moved_labels = None if labels is None else np.concatenate([untrained, labels])[: len(ids)]
    return ids, np.concatenate([[0.0], weights])[: len(ids)], moved_labels


def _check_labels(labels: Ints, ids: Ints, weights: Floats, shifted: bool, key: str) -> None:
    """Reject trained tokens whose label is another id (``labels_shifted``, ``labels_differ``)."""
    trained = weights != 0
    differing = np.flatnonzero(trained & (labels != ids))
    if not len(differing):
        return
    trained_before = np.flatnonzero(trained[:-1])
    if not shifted and len(trained_before) and (labels[trained_before] == ids[trained_before + 1]).all():
        raise Refused("labels_shifted", f"{key!r} are the ids one place further on. If the source means that, set shifted: true")
    index = int(differing[0])
    raise Refused("labels_differ", f"token {index} is {ids[index]}, and its label is {labels[index]}")


def _reject_packed_row(row: Row) -> None:
    """Reject (``packed_row``) a row that holds several examples: their borders would be lost."""
    lengths, positions = row.get("seq_lengths"), row.get("position_ids")
    if lengths is not None and len(integers(lengths, "seq_lengths")) > 1:
        raise Refused("packed_row", f"'seq_lengths' lists {len(lengths)} examples; bring each as a row of its own")
    if positions is not None:
        position_ids = integers(positions, "position_ids")
        if len(breaks := np.flatnonzero(position_ids != np.arange(len(position_ids)))):
            detail = f"'position_ids' has {position_ids[breaks[0]]} at token {breaks[0]}; bring each example as a row of its own"
            raise Refused("packed_row", detail)


def chat_of(row: Row, key: str) -> Sample:
    """The conversation of a row, which proves its ids; a sample without turns where it has no messages."""
    if not has_content(value := row.get(key)):
        return Sample(())
    turns = with_system_of(row, ChatFormat().turns(value, key))
    sample = Sample(turns, label=label_of(row), **offered(row))
    if any(region.loss_weight is not None for turn in sample.turns for region in turn.regions):
        raise Refused("masks_disagree", f"{key!r} gives loss weights, and the row has a mask of its own. Leave one of the two out")
    return sample


def _check_length(key: str, count: int, length: int | None) -> None:
    if length is not None and count != length:
        raise Refused("length_mismatch", f"{key!r} has {count} values for {length} token ids")
