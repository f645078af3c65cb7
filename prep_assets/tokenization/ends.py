"""What stands around a document in a pretraining stream: the begin-of-text token where the base model had it, the end-of-text token unless
`append_eod` is false.

auto     as the tokenizer's post-processor has it: whether ``encode("x", add_special_tokens=True)`` begins with ``bos_token``
true     every document begins with ``bos_token``
false    none does
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError
from prep_assets.tokenization.flat import Flat
from prep_assets.tokenization.vocabulary import Vocabulary

Bos = Literal["auto", "true", "false"]


@dataclass(frozen=True, slots=True)
class Ends:
    """Ids around every document: `bos`, or `None` where it begins with its text, and `eos`, or `None` where it ends with it."""

    bos: int | None
    eos: int | None

    @property
    def count(self) -> int:
        """How many there are."""
        return (self.bos is not None) + (self.eos is not None)

    def around(self, ids: npt.NDArray[np.uint32], lengths: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The ids of some texts, end to end, with these around each; and the length of each, they counted."""
        out_lengths = lengths + self.count
        ends = np.cumsum(out_lengths)
        out = np.empty(len(ids) + self.count * len(lengths), np.uint32)
        is_text = np.ones(len(out), bool)
        if self.eos is not None:
            is_text[ends - 1] = False
            out[ends - 1] = self.eos
        if self.bos is not None:
            is_text[ends - out_lengths] = False
            out[ends - out_lengths] = self.bos
        out[is_text] = ids
        return out, out_lengths

    def weights_around(
        self, weights: npt.NDArray[np.float32], lengths: npt.NDArray[np.int64], last: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Loss weights of some texts, end to end, with those of what stands `around` them: 1 for `bos`, `last` of each text for `eos`."""
        out_lengths = lengths + self.count
        ends = np.cumsum(out_lengths)
        out = np.full(int(out_lengths.sum()), np.nan, np.float32)
        if self.eos is not None:
            out[ends - 1] = last
        if self.bos is not None:
            out[ends - out_lengths] = 1
        out[np.isnan(out)] = weights
        return out


def ends_of(vocabulary: Vocabulary, bos: Bos, append_eod: bool = True) -> Ends:
    """What `bos` and `append_eod` mean for a tokenizer.

    Raises:
        ConfigError: it has no such token, or its post-processor writes something else in front of a text, so that ``auto`` has no answer.
    """
    end = vocabulary.eos_id if append_eod else None
    if bos == "false":
        return Ends(None, end)
    if bos == "true":
        return Ends(vocabulary.bos_id, end)
    if vocabulary.file != "tokenizer.json" and "bos_token" in vocabulary.special:
        raise ConfigError(
            f"bos: {vocabulary.file} of tokenizer {vocabulary.name} does not say whether texts begin with its bos_token "
            f"{vocabulary.special['bos_token']!r}. Say it: bos: true where the base model had it, else false"
        )
    plain, whole = (vocabulary.backend.encode("x", add_special_tokens=added).ids for added in (False, True))
    front = whole[: next(at for at in range(len(whole) + 1) if whole[at : at + len(plain)] == plain)]
    if front and front != [vocabulary.bos_id]:
        texts = [vocabulary.backend.id_to_token(number) for number in front]
        raise ConfigError(
            f"bos: tokenizer {vocabulary.name} writes {texts} in front of a text, which is not its bos_token alone. Say whether documents "
            "begin with bos_token: bos: true or false"
        )
    return Ends(front[0] if front else None, end)


def chosen(flat: Flat, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The ids of some texts, end to end, and the length of each."""
    lengths = np.diff(flat.offsets)
    if len(rows) == len(lengths):
        return flat.ids, lengths
    kept = np.zeros(len(lengths), bool)
    kept[rows] = True
    return flat.ids[np.repeat(kept, lengths)], lengths[rows]
