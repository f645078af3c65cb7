"""The reference engine: the `tokenizers` library, which defines the right ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from prep_assets.tokenization.flat import NO_TEXTS, Flat, Ids, offsets_of
from prep_assets.tokenization.native import WORDS_BESIDE, WORDS_IN_CHARGE, in_words, remember_words
from prep_assets.tokenization.ordinary import ordinary

BATCH_CHARACTERS = 1 << 17
"""What the library is given at once, about."""


class ReferenceEngine:
    """The `tokenizers` library itself, opened when it is first used."""

    name = "tokenizers"

    def __init__(self, spec: dict[str, Any], backend: Any = None) -> None:
        """With a ``tokenizer.json``, and a `tokenizers.Tokenizer` that is open and has the model of it: most of opening is reading that."""
        self._spec, self._backend = spec, backend

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        # the post-processor only adds special tokens, which no engine does, and trims white space off the character spans
        form = {**ordinary(self._spec), "post_processor": None}
        same = self._backend is not None and form["model"] is self._spec["model"]
        opened = _around(self._backend.model, form) if same else None
        if opened is None:
            opened = Tokenizer.from_buffer(msgspec.json.encode(form))
            remember_words(opened, WORDS_BESIDE)
        opened.no_truncation()
        opened.no_padding()
        opened.encode_special_tokens = True
        return opened

    def take_charge(self) -> None:
        """Get ready to encode all texts."""
        remember_words(self._tokenizer, WORDS_IN_CHARGE)

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        if not texts:
            return NO_TEXTS
        parts: list[Ids] = []
        # the library holds far more of a text than its ids, so that long texts are not all in its hands at once
        for some in _batches(texts, BATCH_CHARACTERS):
            with in_words("the tokenizer does not encode a text. Use one that reads any text"):
                parts += [np.array(found.ids, np.uint32) for found in self._tokenizer.encode_batch_fast(some, add_special_tokens=False)]
        return Flat(np.concatenate(parts), offsets_of(np.fromiter(map(len, parts), np.int64, len(parts))))

    def char_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of one text and the character span ``(start, end)`` of each."""
        with in_words(f"the tokenizer does not encode {text[:60]!r} ({len(text):,} characters). Use one that reads any text"):
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets


def _around(model: Any, form: Mapping[str, Any]) -> Any:
    """A tokenizer of another one's model; `None` where its added tokens would not have their ids."""
    from tokenizers import AddedToken, Tokenizer

    bare = {**form, "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
    opened = Tokenizer.from_buffer(msgspec.json.encode(bare))
    opened.model = model
    for special, tokens in groupby(form["added_tokens"], itemgetter("special")):
        add = opened.add_special_tokens if special else opened.add_tokens
        add([AddedToken(**{key: value for key, value in token.items() if key != "id"}) for token in tokens])
    ids = {number: token.content for number, token in opened.get_added_tokens_decoder().items()}
    return opened if ids == {token["id"]: token["content"] for token in form["added_tokens"]} else None


def _batches(texts: Sequence[str], characters: int) -> Iterator[list[str]]:
    """Runs of texts of about so many characters."""
    some: list[str] = []
    size = 0
    for text in texts:
        some.append(text)
        size += len(text)
        if size >= characters:
            yield some
            some, size = [], 0
    if some:
        yield some
