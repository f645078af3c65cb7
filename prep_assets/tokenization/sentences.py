"""Documents cut into sentences by Punkt, each tokenized for itself, as Megatron and ModelLink do with ``--split-sentences``.

White space between two sentences belongs to the one before it, so the sentences of a document are its text, to the character.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError
from prep_assets.tokenization.flat import Engine, Flat
from prep_assets.tokenization.vocabulary import Vocabulary

STARTS = "sentence_start"
"""The array of a token stream that is 1 at the first token of each sentence; what stands around a document belongs to its first and last one."""
_PARTS = ("abbrev_types", "collocations", "sent_starters", "ortho_context")


@dataclass(frozen=True)
class Sentences:
    """What cuts documents.

    Attributes:
        language: of a Punkt model, e.g. ``english``.
    """

    language: str

    @cached_property
    def _punkt(self) -> Any:
        try:
            from nltk.tokenize.punkt import PunktTokenizer
        except ImportError as error:
            raise ConfigError(
                f"split_sentences needs nltk, which is not installed ({error}). pip install 'prep-assets[sentences]'"
            ) from error
        try:
            return PunktTokenizer(self.language)
        except (LookupError, ValueError) as error:
            raise ConfigError(
                f"split_sentences: nltk finds no Punkt model {self.language!r}. Put its data set punkt_tab where nltk looks (NLTK_DATA), e.g. "
                "with python -m nltk.downloader punkt_tab"
            ) from error

    @cached_property
    def identity(self) -> dict[str, str]:
        """What decides where it cuts, for recipes."""
        found = hashlib.sha256()
        for name in _PARTS:
            part = getattr(self._punkt._params, name)
            # a word that was asked for in vain stands in the dictionary as 0
            listed = sorted(map(repr, ((key, value) for key, value in part.items() if value) if isinstance(part, dict) else part))
            found.update(repr([name, listed]).encode())
        return {"language": self.language, "sha256": found.hexdigest(), "nltk": version("nltk")}

    def cut(self, text: str) -> list[str]:
        """The sentences of a text; their texts end to end are the text."""
        begins = [begin for begin, _ in self._punkt.span_tokenize(text)]
        return [text[low:high] for low, high in pairwise([0, *begins[1:], len(text)])]

    def encode(self, texts: Sequence[str], engine: Engine) -> tuple[Flat, npt.NDArray[np.uint8]]:
        """The ids of each text, and uint8[T]: 1 at the first token of each sentence."""
        cut = [self.cut(text) for text in texts]
        flat = engine.encode([sentence for each in cut for sentence in each])
        starts = np.zeros(len(flat.ids), np.uint8)
        starts[flat.offsets[:-1][np.diff(flat.offsets) > 0]] = 1
        counts = np.cumsum([0, *map(len, cut)])
        return Flat(flat.ids, flat.offsets[counts]), starts


@bounded_cache("sentences", 8)
def sentences_of(language: str | None) -> Sentences | None:
    """What cuts documents; `None` where they stay whole."""
    return None if language is None else Sentences(language)


def refuse_other_bytes(vocabulary: Vocabulary) -> None:
    """Stop where sentences that are tokenized for themselves would not decode to the document.

    Raises:
        ConfigError: the tokenizer's ids do not stand for fixed bytes, or it writes a space before each text.
    """
    if vocabulary.token_bytes is None or vocabulary.prefix_space != "never":
        raise ConfigError(
            f"split_sentences: tokenizer {vocabulary.name} changes the beginning of each text that it is given, so that the tokens of sentences do "
            "not add up to the document. Leave split_sentences out, or use a byte-level tokenizer"
        )
