"""Documents split into sentences, or into three parts for fill-in-the-middle."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from itertools import compress, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import Struct

from prep_assets.caches import bounded_cache
from prep_assets.data.quarantine import renumbered
from prep_assets.errors import ConfigError, Refused, nearest
from prep_assets.text.engines import Engines
from prep_assets.text.ids import Engine, Flat, interleaved
from prep_assets.text.vocabulary import Vocabulary

# Documents split into sentences by Punkt and tokenized sentence by sentence, as Megatron and ModelLink do with ``--split-sentences``.
#
# White space between two sentences belongs to the first of them, so the sentences of a document add up to its text.

_PARTS = ("abbrev_types", "collocations", "sent_starters", "ortho_context")


class Sentences(Struct, frozen=True, dict=True):
    """Splits documents into sentences.

    Attributes:
        language: language of a Punkt model, e.g. ``english``.
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
        """What decides the splits, for recipes."""
        digest = hashlib.sha256()
        for name in _PARTS:
            part = getattr(self._punkt._params, name)
            # a lookup of a missing word leaves a 0 in the dictionary
            entries = sorted(map(repr, ((key, value) for key, value in part.items() if value) if isinstance(part, dict) else part))
            digest.update(repr([name, entries]).encode())
        return {"language": self.language, "sha256": digest.hexdigest(), "nltk": version("nltk")}

    def cut(self, text: str) -> list[str]:
        """The sentences of a text, which add up to the text."""
        begins = [begin for begin, _ in self._punkt.span_tokenize(text)]
        return [text[low:high] for low, high in pairwise([0, *begins[1:], len(text)])]

    def encode(self, texts: Sequence[str], engine: Engine) -> tuple[Flat, npt.NDArray[np.uint8]]:
        """The ids of each text, and uint8[T]: 1 at the first token of each sentence."""
        split_texts = [self.cut(text) for text in texts]
        flat = engine.encode([sentence for sentences in split_texts for sentence in sentences])
        starts = np.zeros(len(flat.ids), np.uint8)
        starts[flat.offsets[:-1][np.diff(flat.offsets) > 0]] = 1
        counts = np.cumsum([0, *map(len, split_texts)])
        return Flat(flat.ids, flat.offsets[counts]), starts


@bounded_cache("sentences", 8)
def sentences_of(language: str | None) -> Sentences | None:
    """The splitter of a language; `None` if documents stay whole."""
    return None if language is None else Sentences(language)


def check_fixed_bytes(vocabulary: Vocabulary) -> None:
    """Raise if sentences that are tokenized separately would not decode to the document.

    Raises:
        ConfigError: ids of the tokenizer do not stand for fixed bytes, or it prepends a space to each text.
    """
    if vocabulary.token_bytes is None or vocabulary.prefix_space != "never":
        raise ConfigError(
            f"split_sentences: tokenizer {vocabulary.name} changes the beginning of each text that it is given, so that the tokens of sentences do "
            "not add up to the document. Leave split_sentences out, or use a byte-level tokenizer"
        )


# Fill-in-the-middle: documents cut into three parts, so that a model learns to write the text between two others.
#
#     PSM   <prefix> head <suffix> tail <middle> body
#     SPM   <prefix> <suffix> tail <middle> head body
#
# Both are those of Bavarian et al., "Efficient Training of Language Models to Fill in the Middle" (2022), section 4.3; Cerebras Model Zoo writes the same. A
# document is cut at two places between characters before it is tokenized, and its three parts are tokenized separately, as they are at inference.
# The cuts follow from the seed and the id of the record, so equal input gives equal tokens.


class Sentinels(NamedTuple):
    """Ids of the three sentinel tokens, which source texts never produce."""

    prefix: int
    suffix: int
    middle: int


class Cut(Struct, frozen=True):
    """The two cuts of a document, in characters, and whether its parts are in SPM order."""

    start: int
    end: int
    suffix_first: bool

    def parts(self, text: str) -> tuple[str, str, str]:
        """Head, body and tail."""
        return text[: self.start], text[self.start : self.end], text[self.end :]


def sentinels_of(vocabulary: Vocabulary, prefix: str, suffix: str, middle: str) -> Sentinels:
    """The ids of the three sentinel tokens.

    Raises:
        ConfigError: one is not an added token of the tokenizer, two are equal, or one ends documents; or the tokenizer does not decode to the
            bytes of the text, so that the three parts could not be proven to be the document.
    """
    added = {token["content"]: int(token["id"]) for token in vocabulary.frame["added_tokens"]}
    for key, text in (("prefix_token", prefix), ("suffix_token", suffix), ("middle_token", middle)):
        if text not in added:
            raise ConfigError(
                f"preprocessing.fim.{key}: tokenizer {vocabulary.name} has no added token {text!r}{nearest(text, added) or '.'} "
                f"It has: {', '.join(added)}"
            )
    sentinels = Sentinels(added[prefix], added[suffix], added[middle])
    if len({*sentinels, vocabulary.eos_id}) < 4:
        raise ConfigError("preprocessing.fim: prefix, suffix, middle and end-of-text must be four different tokens")
    if vocabulary.byte_lengths is None or vocabulary.prefix_space == "always":
        raise ConfigError(
            f"preprocessing.fim: tokenizer {vocabulary.name} does not give the parts of a document back as they were "
            "(it changes text by more than composing it, or puts a space in front of each part). Use a byte-level or SentencePiece BPE tokenizer without that"
        )
    return sentinels


def cut_of(record: str, length: int, *, rate: float, spm_rate: float, seed: int) -> Cut | None:
    """The cut of a document of `length` characters; `None` if it stays whole.

    Both places are drawn uniformly from the `length` + 1 possible ones, so any part may be empty.

    Args:
        record: the record's id; draws are of the number counted from 0, with which these cuts were first made.
    """
    record = renumbered(record, -1)
    numbers = [xxhash.xxh3_64_intdigest(f"{seed}:{draw}:{record}".encode()) / 2**64 for draw in ("cut", "order", "one", "other")]
    if numbers[0] >= rate:
        return None
    places = sorted(min(length, int(number * (length + 1))) for number in numbers[2:])
    return Cut(places[0], places[1], numbers[1] < spm_rate)


class FillInTheMiddle(Struct, frozen=True):
    """Tokenizes documents, a share of them cut for fill-in-the-middle.

    Attributes:
        sentinels: the ids in front of the parts.
        rate: share of documents that are cut.
        spm_rate: share of cut documents in SPM order.
        seed: decides cuts and orders, with the id of a record.
    """

    vocabulary: Vocabulary
    engines: Engines
    sentinels: Sentinels
    rate: float
    spm_rate: float
    seed: int

    def encode(self, texts: Sequence[str], records: Sequence[str]) -> Flat:
        """Ids of each text, in order. `records`: the ids of their records."""
        cuts = [self._cut(text, record) for text, record in zip(texts, records, strict=True)]
        is_uncut = np.array([cut is None for cut in cuts], bool)
        prefix, suffix, middle = (np.array([number], np.uint32) for number in self.sentinels)
        cut_ids = []
        pieces = [part for text, cut in zip(texts, cuts, strict=True) if cut is not None for part in cut.parts(text)]
        flat = self.engines.rest.encode(pieces)
        parts = iter(np.split(flat.ids, flat.offsets[1:-1]) if pieces else [])
        for cut, head, body, tail in zip(filter(None, cuts), parts, parts, parts, strict=True):
            order = (prefix, suffix, tail, middle, head, body) if cut.suffix_first else (prefix, head, suffix, tail, middle, body)
            cut_ids.append(np.concatenate(order))
        return interleaved(self.engines.first.encode(list(compress(texts, is_uncut))), Flat.of(cut_ids), is_uncut)

    def normalized(self, text: str, record: str) -> str:
        """The text as it is tokenized: its parts in the order of the text, each of them normalized."""
        cut = self._cut(text, record)
        return "".join(map(self.vocabulary.normalized, (text,) if cut is None else cut.parts(text)))

    def _cut(self, text: str, record: str) -> Cut | None:
        return cut_of(record, len(text), rate=self.rate, spm_rate=self.spm_rate, seed=self.seed)

    def byte_lengths(self) -> npt.NDArray[np.int64]:
        """Number of document bytes of each id, int64[size]: 0 for sentinels."""
        lengths = np.array(self.vocabulary.byte_lengths, np.int64)
        lengths[[*self.sentinels]] = 0
        return lengths

    def check(self, text: str) -> None:
        """Reject a document in which a typed sentinel would become the token.

        A tokenizer that marks its sentinels special is safe: the engines encode such text as plain characters.

        Raises:
            Refused: ``control_token_in_content``.
        """
        for token in self.vocabulary.frame["added_tokens"]:
            if not token["special"] and token["id"] in self.sentinels and token["content"] in text:
                raise Refused("control_token_in_content", f"the document holds {token['content']!r}", stage="pretrain")
