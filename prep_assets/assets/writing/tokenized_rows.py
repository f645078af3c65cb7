"""Rows that bring their token ids and loss weights: proven row by row, then stored as they are.

Ids are never trusted. They must be inside the vocabulary and decode to whole characters; where the row has their text or their messages, they must be
the tokenizer's own ids of these. A mask must not begin or end amid a character, nor stand one token beside the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from prep_assets.assets.reading.examples import Item
from prep_assets.errors import ConfigError, Refused
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import ASSISTANT, USER, Sample, turn
from prep_assets.templates.rendered import Rendered
from prep_assets.tokenization.cuts import NOTHING
from prep_assets.tokenization.encode import Encoded, Encoder
from prep_assets.tokenization.policy import MaskPolicy
from prep_assets.tokenization.truncation import kept_tokens

BROKEN = "\ufffd"
Ids = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]
Row = tuple[Ids, Weights]


@dataclass(frozen=True, slots=True)
class Opening:
    """How the template opens and ends an answer, in ids."""

    header: tuple[int, ...]
    stop: int


@dataclass
class TokenizedRows:
    """Proves rows and gives them the form of tokenized examples.

    Attributes:
        encoder: tokenizes messages of rows again; its limit and its way of truncation hold for the rows.
        render: renders a conversation, or refuses it.
        sample: the sample of an item, or refuses it.
        quarantine: where refused rows go.
        made_by: the tokenizer that made the ids, as the domain names it; `None` where it names none.
        image: the id that stands for an image, which no row may bring; `None` where there can be none.
        rows, retokenized, own_masks: how many rows were kept, of how many the decoded text has other ids, and of how many with messages the mask is
            another than the policy's.
    """

    encoder: Encoder
    render: Callable[[Sample], Rendered]
    sample: Callable[[Item], Sample]
    quarantine: Quarantine
    made_by: str | None = None
    image: int | None = None
    rows: int = 0
    retokenized: int = 0
    own_masks: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """For the manifest; nothing where no row brings ids."""
        found = {"tokenized_rows": self.rows, "retokenized_otherwise": self.retokenized, "masks_of_their_own": self.own_masks}
        return found if self.rows else {}

    def of(self, items: Sequence[Item]) -> tuple[list[Item], Encoded]:
        """The kept items that bring ids, and these; the others are in quarantine.

        Raises:
            ConfigError: nothing says which tokenizer made them.
        """
        if not self.made_by:
            raise ConfigError(
                f"{items[0].id} brings token ids, and nothing says which tokenizer made them. Set tokenized_by of the domain to its folder"
            )
        kept: list[Item] = []
        samples: list[Sample] = []
        for item in items:
            try:
                samples.append(self.sample(item))
                kept.append(item)
            except Refused as refusal:
                item.refuse(self.quarantine, refusal)
        encoded = self.encode(samples)
        for position, fault in encoded.refused:
            kept[position].refuse(self.quarantine, fault)
        return [kept[position] for position in encoded.kept.tolist()], encoded

    def encode(self, samples: Sequence[Sample]) -> Encoded:
        """The ids and weights of samples that bring them. Every one is in the result or refused."""
        rows = [_arrays(sample) for sample in samples]
        lengths = [len(ids) for ids, _ in rows]
        faults: dict[int, Refused] = {}
        for at, (ids, weights) in enumerate(rows):
            try:
                self._check_ids(ids, weights)
            except Refused as fault:
                faults[at] = fault
        sound = [at for at in range(len(rows)) if at not in faults]
        given = [samples[at] for at in sound], [rows[at] for at in sound]
        for at, other, own in zip(sound, self._check_texts(*given), self._check_messages(*given), strict=True):
            try:
                for found in (other, own):
                    if isinstance(found, Refused):
                        raise found
                self._check_place(*rows[at])
                rows[at] = self._cut(*rows[at])
            except Refused as fault:
                faults[at] = fault
                continue
            self.rows, self.retokenized, self.own_masks = self.rows + 1, self.retokenized + bool(other), self.own_masks + bool(own)
        return _batch(rows, lengths, faults)

    def _check_ids(self, ids: Ids, weights: Weights) -> None:
        vocabulary = self.encoder.vocabulary
        if not 0 <= ids.min() <= ids.max() < vocabulary.size:
            wrong = int(ids[(ids < 0) | (ids >= vocabulary.size)][0])
            raise _refused("id_outside_vocabulary", f"id {wrong}, the vocabulary has {vocabulary.size:,}")
        if not weights.any():
            raise _refused("nothing_to_train", "no token of this example carries loss")
        if "bos_token" in vocabulary.special and (ids[:2] == vocabulary.bos_id).all() and len(ids) > 1:
            raise _refused("doubled_bos", f"it begins with {vocabulary.special['bos_token']!r} twice")
        if self.image is not None and (ids == self.image).any():
            raise _refused("image_token_in_content", "it holds the token that stands for images, and brings no image")

    def _check_texts(self, samples: Sequence[Sample], rows: Sequence[Row]) -> list[bool | Refused]:
        """Of each row whether its decoded text has other ids, or why it is refused."""
        vocabulary = self.encoder.vocabulary
        runs = [[(start, end) for start, end in _runs(weights)] for _, weights in rows]
        texts = vocabulary.decode_batch([ids.tolist() for ids, _ in rows])
        trained = iter(vocabulary.decode_batch([ids[s:e].tolist() for (ids, _), each in zip(rows, runs, strict=True) for s, e in each]))
        again = self._encoded(texts)
        said = iter(self._encoded([sample.tokenized.text for sample in samples if sample.tokenized and sample.tokenized.text is not None]))
        found: list[bool | Refused] = []
        for sample, (ids, _), each, text, same in zip(samples, rows, runs, texts, again, strict=True):
            parts = [next(trained) for _ in each]
            evidence = next(said) if sample.tokenized and sample.tokenized.text is not None else None
            found.append(_text_fault(ids, text, parts, same, evidence) or ids.tolist() not in same)
        return found

    def _encoded(self, texts: Sequence[str]) -> list[list[list[int]]]:
        """The ids of each text with its control tokens, without and with what the tokenizer itself writes around a text."""
        backend = self.encoder.vocabulary.encoder
        backend.encode_special_tokens = False
        plain, whole = (backend.encode_batch(list(texts), add_special_tokens=add) for add in (False, True))
        return [[a.ids, b.ids] for a, b in zip(plain, whole, strict=True)]

    def _check_messages(self, samples: Sequence[Sample], rows: Sequence[Row]) -> list[bool | Refused]:
        """Of each row whether its mask is another than the policy's for its messages, or why it is refused; `False` without messages."""
        found: list[bool | Refused] = [False] * len(rows)
        renders: dict[int, Rendered] = {}
        for at, sample in enumerate(samples):
            try:
                if sample.turns:
                    renders[at] = self.render(replace(sample, tokenized=None))
            except Refused as fault:
                found[at] = fault
        numbers = list(renders)
        encoded = self._whole.encode(list(renders.values()))
        for at, refusal in encoded.refused:
            found[numbers[at]] = refusal
        for at, (low, high) in zip(encoded.kept.tolist(), pairwise(encoded.offsets.tolist()), strict=True):
            found[numbers[at]] = self._beside(rows[numbers[at]], encoded.ids[low:high], encoded.loss[low:high])
        return found

    def _beside(self, row: Row, expected: npt.NDArray[np.uint32], policy: Weights) -> bool | Refused:
        """What a row has against what its messages give."""
        ids, weights = row
        if not np.array_equal(expected, ids):
            return _refused("ids_differ_from_messages", _difference(ids, expected, self.encoder))
        if np.array_equal(policy, weights):
            return False
        if any(np.array_equal(np.roll(policy, by)[1:-1], weights[1:-1]) for by in (-1, 1)):
            return _refused("mask_shifted", "the mask is that of the messages, one token beside its place")
        return True

    @cached_property
    def _whole(self) -> Encoder:
        """The encoder without a limit, and without asking for anything to train."""
        return replace(self.encoder, max_seq_len=None, trains=False)

    def _check_place(self, ids: Ids, weights: Weights) -> None:
        """Refuse a mask of which every stretch stands one token before or behind the template's opening of an answer."""
        if (opening := self._opening) is None:
            return
        header, listed, runs = list(opening.header), ids.tolist(), _runs(weights)

        def opened_at(place: int) -> bool:
            return place >= len(header) and listed[place - len(header) : place] == header

        late = all(opened_at(start - 1) and listed[start - 1] != opening.stop for start, _ in runs)
        early = all(
            opened_at(start + 1) and listed[end : end + 1] == [opening.stop] and listed[end - 1] != opening.stop for start, end in runs
        )
        if late or early:
            side = "behind" if late else "before"
            raise _refused("mask_shifted", f"each trained stretch begins one token {side} the place where the template opens an answer")

    @cached_property
    def _opening(self) -> Opening | None:
        """`None` where no control token tells where an answer is opened."""
        try:
            encoded = replace(self._whole, policy=MaskPolicy()).encode([self.render(Sample((turn(USER, "a"), turn(ASSISTANT, "b"))))])
        except Refused:
            return None
        ids, trained, control = encoded.ids.tolist(), np.flatnonzero(encoded.loss), set(self.encoder.vocabulary.control.values())
        before = [at for at in range(int(trained[0])) if ids[at] in control] if len(trained) else []
        if not before:
            return None
        return Opening(tuple(ids[before[-1] : trained[0]]), ids[trained[-1]])

    def _cut(self, ids: Ids, weights: Weights) -> tuple[Ids, Weights]:
        """What truncation leaves of a row. Only its ends can be cut: nothing tells its rounds and prompts."""
        limit, mode = self.encoder.max_seq_len, self.encoder.truncation
        if limit is None or len(ids) <= limit:
            return ids, weights
        keep = kept_tokens(len(ids), limit, mode, (), {}) if mode in ("start", "end") else None
        if keep is None:
            raise _refused("too_long", f"{len(ids):,} tokens, max_seq_len is {limit:,}")
        if not weights[keep].any():
            raise _refused("nothing_to_train", "no token that truncation leaves carries loss")
        return ids[keep], weights[keep]


def _arrays(sample: Sample) -> tuple[Ids, Weights]:
    assert sample.tokenized is not None
    return np.array(sample.tokenized.ids, np.int64), np.array(sample.tokenized.weights, np.float32)


def _runs(weights: Weights) -> list[tuple[int, int]]:
    """Start and end of each trained stretch."""
    edges = [0, *(np.flatnonzero(np.diff(weights != 0)) + 1).tolist(), len(weights)]
    return [(start, end) for start, end in pairwise(edges) if weights[start]]


def _text_fault(
    ids: Ids, text: str, parts: Sequence[str], same: Sequence[list[int]], evidence: Sequence[list[int]] | None
) -> Refused | None:
    if BROKEN in text and ids.tolist() not in same:
        return _refused("broken_text", f"its ids decode to a part of a character: …{text[max(0, text.index(BROKEN) - 20) :][:40]!r}…")
    if sum(part.count(BROKEN) for part in parts) > text.count(BROKEN):
        return _refused("mask_splits_character", "a trained stretch begins or ends amid a character")
    if evidence is not None and ids.tolist() not in evidence:
        return _refused(
            "ids_differ_from_text",
            f"{len(ids)} ids that decode to {text[:80]!r} are not the tokenizer's {len(evidence[0])} of the row's text",
        )
    return None


def _difference(ids: Ids, expected: npt.NDArray[np.uint32], encoder: Encoder) -> str:
    shorter = min(len(ids), len(expected))
    differing = np.flatnonzero(ids[:shorter] != expected[:shorter])
    at = int(differing[0]) if len(differing) else shorter
    near = [encoder.vocabulary.decode(each[max(0, at - 4) : at + 4]) for each in (ids, expected)]
    return f"{len(ids)} ids, its messages have {len(expected)}; at token {at} stands …{near[0]!r}…, the messages have …{near[1]!r}…"


def _refused(reason: str, detail: str) -> Refused:
    return Refused(reason, detail, stage="tokenize")


def _batch(rows: Sequence[Row], lengths: Sequence[int], faults: dict[int, Refused]) -> Encoded:
    """What was kept of rows that were so long."""
    kept = [at for at in range(len(rows)) if at not in faults]
    ids = [rows[at][0].astype(np.uint32) for at in kept]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(each) for each in ids], dtype=np.int64)])
    none = np.zeros(0, np.uint32)
    weights = np.concatenate([np.zeros(0, np.float32), *(rows[at][1] for at in kept)])
    refused = tuple(sorted(faults.items(), key=lambda each: each[0]))
    taken = np.array([lengths[at] for at in kept], np.int64) - np.diff(offsets)
    return Encoded(np.concatenate([none, *ids]), weights, offsets, np.array(kept, np.int64), refused, NOTHING, taken)
