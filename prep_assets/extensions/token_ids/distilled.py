"""``distilled``: token ids or messages with the likeliest tokens of a teacher, as axolotl, DistillKit, NeMo-Aligner, vLLM and SGLang write them.

Where the distribution of a token stands differs, and nothing fails where it is read one place beside: vLLM's ``prompt_logprobs``, SGLang's
``input_top_logprobs`` and axolotl's KD data have it at the token itself; DistillKit (``sample_logits_vllm.py``) and NeMo-Aligner
(``compute_topk_logits.py``) have it one place before, where a model puts it out. The extension `distillation` proves which of the two a row has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Floats, Ints
from prep_assets.errors import ConfigError, Refused
from prep_assets.extensions.token_ids.tokenized import MASKS, TokenColumns, integers
from prep_assets.samples import Listed, Row, Sample, changed
from prep_assets.schemas.fields import as_list, as_mapping, as_number, value_at, whole, wrong_type
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import ChatFormat, chat_sample, with_system_of

FILLER = -10_000.0
"""What is not above it fills rows of unequal length, such as -inf and axolotl's -1e9: no model says so of a token."""
MOST_MASS = 1.01
"""Probabilities of one token add up to 1, but for the rounding of bfloat16."""
_NAMED = "token_id:"


@schema(
    "distilled",
    gives=Sample,
    example={
        "input_ids": [65, 66, 67],
        "labels": [-100, 66, 67],
        "target_token_ids": [[], [66, 70], [67, 65]],
        "target_logprobs": [[], [-0.25, -2.0], [-0.5, -1.0]],
    },
)
def distilled(
    *,
    ids_key: str = "input_ids",
    labels_key: str = "labels",
    mask_keys: Sequence[str] = MASKS,
    shifted: bool = False,
    text_key: str = "text",
    messages_key: str = "messages",
    teacher_ids_key: str | None = "target_token_ids",
    logprobs_key: str = "target_logprobs",
    log_sum_key: str | None = None,
    entry_mask_key: str = "target_mask",
    teacher_shifted: bool = False,
    top_k: int | None = None,
    compression: dict[str, Any] | None = None,
) -> Convert:
    """Token ids, or a chat, with a teacher's log-probabilities of the likeliest tokens at each place.

    A row without ids has messages, and one list of entries for each trained token of their render.

    Options:
        ids_key: token ids of a whole example.
        labels_key: ids of trained tokens, -100 for others.
        mask_keys: arrays of weights; several are multiplied. Without labels and masks each token with entries is trained.
        shifted: labels and masks are one place before their token, as a model's outputs.
        text_key: a text, control tokens written out, whose ids these must be; optional.
        messages_key: a chat whose render's ids these must be; optional.
        teacher_ids_key: for each token the ids of the teacher's likeliest tokens; null if the entries under `logprobs_key` name them.
        logprobs_key: their log-probabilities; with `teacher_ids_key` null, vLLM's, SGLang's or axolotl's entries.
        log_sum_key: log-sum-exp at each place, if `logprobs_key` has logits.
        entry_mask_key: 0 for entries to leave out, if any.
        teacher_shifted: entries are one place before their token, as a model's outputs.
        top_k: keep so many of the likeliest entries of a token; null: all.
        compression: what DistillKit's ``compression_config.yaml`` says of rows whose entries are bytes, or ``legacy_logit_compression`` of rows with `coeffs`.
    """
    if top_k is not None and top_k < 1:
        raise ConfigError(f"top_k is {top_k}: at least one entry of a token is kept. Set a larger one, or null for all")
    if compression is None:
        decoder = None
    else:
        from prep_assets.extensions.token_ids.distillkit import compression_of

        decoder = compression_of(compression)
        if teacher_ids_key is None or log_sum_key is not None:
            raise ConfigError(
                "compression goes with teacher_ids_key, the bytes of token ids, and without log_sum_key: its values are log-probabilities"
            )
    columns = TokenColumns(ids_key, labels_key, tuple(mask_keys), "", "", shifted, text_key, messages_key)

    def entries(row: Row) -> Entries:
        lists = as_list(value_at(row, logprobs_key), logprobs_key)
        if decoder is not None:
            ids, values = decoder.decoded(row, str(teacher_ids_key), logprobs_key)
            read = Entries(np.full(len(ids), decoder.k), ids.reshape(-1), values.reshape(-1))
        elif teacher_ids_key is None:
            read = Entries.named(lists, logprobs_key)
        else:
            read = Entries.of(as_list(value_at(row, teacher_ids_key), teacher_ids_key), lists, teacher_ids_key, logprobs_key)
        if log_sum_key is not None:
            sums = _numbers(as_list(value_at(row, log_sum_key), log_sum_key), log_sum_key)
            _require(len(sums) == len(read.counts), f"{log_sum_key!r} has {len(sums)} values for {len(read.counts)} lists of entries")
            read = Entries(read.counts, read.ids, read.logprobs - np.repeat(sums, read.counts))
        kept = ~(read.logprobs <= FILLER)  # what is no number is refused
        if row.get(entry_mask_key) is not None:
            mask = _flat(as_list(row[entry_mask_key], entry_mask_key), entry_mask_key)
            _require(len(mask) == len(kept), f"{entry_mask_key!r} has {len(mask)} values for {len(kept)} entries")
            kept &= _numbers(mask, entry_mask_key) != 0
        return read.only(kept).sound(logprobs_key).likeliest(top_k)

    def convert(row: Row) -> Sample:
        read = entries(row)
        if row.get(ids_key) is None and not teacher_shifted:
            sample = chat_sample(row, with_system_of(row, ChatFormat().turns(value_at(row, messages_key), messages_key)))
            return changed(sample, lists=read.teacher(of_trained=True))
        length = len(as_list(value_at(row, ids_key), ids_key))
        lists = len(read.counts)
        _require(lists in (length, length - 1), f"{logprobs_key!r} has {lists} lists of entries for {length} token ids")
        # a list less: the first token has none, wherever the others stand
        places = np.arange(lists) + int(teacher_shifted or lists < length)
        placed = read.at(places, length + 1)
        unmasked = None if shifted else (placed.counts[:length] > 0).astype(np.float64)
        sample = columns.sample(row, unmasked)
        assert sample.tokenized is not None
        padding = columns.shown(row, np.zeros(length)).start or 0
        return changed(sample, lists=read.at(places - padding, len(sample.tokenized.ids)).teacher())

    return convert


class Entries(Struct, frozen=True):
    """The entries of several places: `counts` of each, int64[N]; `ids`, int64[E], and `logprobs`, float64[E], of all end to end."""

    counts: Ints
    ids: Ints
    logprobs: Floats

    @classmethod
    def of(cls, ids: Sequence[Any], logprobs: Sequence[Any], ids_key: str, logprobs_key: str) -> Entries:
        """From parallel lists; null is a place without entries."""
        counts = [[len(as_list(place, key)) for place in map(_listed, lists)] for lists, key in ((ids, ids_key), (logprobs, logprobs_key))]
        if counts[0] != counts[1]:
            at = next((i for i, (a, b) in enumerate(zip(*counts, strict=False)) if a != b), min(map(len, counts)))
            _require(False, f"{ids_key!r} and {logprobs_key!r} have another number of entries at place {at}")
        flat = _flat(ids, ids_key), _numbers(_flat(logprobs, logprobs_key), logprobs_key)
        return cls(np.array(counts[0], np.int64), integers(flat[0], ids_key), flat[1])

    @classmethod
    def named(cls, places: Sequence[Any], key: str) -> Entries:
        """From entries that name their token: ``{"17": {"logprob": -0.5}}`` (vLLM), ``[[-0.5, 17, " a"]]`` (SGLang), ``[{"token": "token_id:17", "logprob":
        -0.5}]`` (axolotl)."""
        lists = [list(_named_entries(place, f"{key}[{i}]")) for i, place in enumerate(places)]
        flat = list(chain.from_iterable(lists))
        ids = integers([token for token, _ in flat], key)
        return cls(np.array([len(entries) for entries in lists], np.int64), ids, _numbers([logprob for _, logprob in flat], key))

    def only(self, kept: npt.NDArray[np.bool_]) -> Entries:
        """Some of the entries, at the same places."""
        return Entries(np.bincount(self.place[kept], minlength=len(self.counts)), self.ids[kept], self.logprobs[kept])

    @property
    def place(self) -> Ints:
        """int64[E], the place of each entry."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def sound(self, key: str) -> Entries:
        """Itself.

        Raises:
            Refused: there is none, or what is no probabilities of different tokens.
        """
        if not len(self.ids):
            raise Refused("no_teacher", f"{key!r} has no entry for any token")
        if np.isnan(self.logprobs).any() or self.logprobs.max() > 0:
            raise Refused("positive_logprob", f"{key!r} holds {self.logprobs.max():g}, which cannot be a log-probability")
        order = np.lexsort((self.ids, self.place))
        twice = np.flatnonzero((np.diff(self.ids[order]) == 0) & (np.diff(self.place[order]) == 0))
        if len(twice):
            at = order[twice[0]]
            raise Refused("teacher_names_token_twice", f"{key!r} has token {self.ids[at]} twice at place {self.place[at]}")
        mass = np.bincount(self.place, np.exp(self.logprobs), len(self.counts))
        if mass.max() > MOST_MASS:
            raise Refused("probabilities_above_one", f"the probabilities at place {mass.argmax()} of {key!r} add up to {mass.max():.3f}")
        return self

    def likeliest(self, top_k: int | None) -> Entries:
        """With the likeliest entries of each place first, and of each place at most `top_k`."""
        order = np.lexsort((-self.logprobs, self.place))
        ordered = Entries(self.counts, self.ids[order], self.logprobs[order])
        if top_k is None:
            return ordered
        rank = np.arange(len(order)) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        return ordered.only(rank < top_k)

    def at(self, places: Ints, length: int) -> Entries:
        """The same entries at other, ascending places of `length`. Those outside are padding, or behind the last token: they are left out."""
        inside = (places >= 0) & (places < length)
        counts = np.zeros(length, np.int64)
        counts[places[inside]] = self.counts[inside]
        kept = np.repeat(inside, self.counts)
        return Entries(counts, self.ids[kept], self.logprobs[kept])

    def teacher(self, *, of_trained: bool = False) -> Listed:
        """As part of a sample."""
        values = {"id": tuple(self.ids.tolist()), "logprob": tuple(self.logprobs.tolist())}
        return Listed(tuple(self.counts.tolist()), values, of_trained)


def _named_entries(place: object, where: str) -> Iterator[tuple[int, float]]:
    if isinstance(place, Mapping):
        for token, value in place.items():
            yield _id(str(token), where), whole(as_mapping(value, where)).get("logprob")
        return
    for entry in as_list(_listed(place), where):
        if isinstance(entry, Mapping):
            named = whole(entry)
            yield _id(str(named.get("token")).removeprefix(_NAMED), where), named.get("logprob")
        elif len(values := as_list(entry, where)) < 2:
            wrong_type(entry, where, "an array of a log-probability and a token id")
        else:
            yield values[1], values[0]


def _id(token: str, where: str) -> int:
    if not token.isdecimal():
        detail = f"{where!r} names a token {token[:40]!r}: it needs its id, as vLLM gives it with return_tokens_as_token_ids"
        raise Refused("teacher_without_ids", detail)
    return int(token)


def _listed(place: object) -> object:
    return [] if place is None else place


def _flat(places: Sequence[Any], key: str) -> list[Any]:
    return list(chain.from_iterable(as_list(_listed(place), key) for place in places))


def _numbers(values: Sequence[Any], key: str) -> Floats:
    # infinite ones fill rows, and are left out later
    return np.array([value if type(value) is float else as_number(value, key) for value in values], np.float64)


def _require(fits: bool, detail: str) -> None:
    if not fits:
        raise Refused("length_mismatch", detail)
