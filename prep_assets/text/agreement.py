"""Whether others read a tokenizer as we do: `transformers.AutoTokenizer` a ``tokenizer.json``, its own library any other file.

The class that a ``tokenizer_config.json`` names may replace the pre-tokenizer or the normalizer of the file: in transformers 5 SmolLM's digits
are no longer split. Both readings decode to the text, so nothing else can notice. Where the definitions are equal there is nothing to compare;
where they are not, both encode the edge set, and a sample of the data as it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from prep_assets.errors import ConfigError
from prep_assets.stores.files import Kept, key_of
from prep_assets.text.code_tokenizer import in_a_new_process
from prep_assets.text.engines import Engines, choose_engine
from prep_assets.text.ids import DECIDES, Engine, Flat, remembered
from prep_assets.text.suspects import edge_set, typed
from prep_assets.text.tokenizer_files import UnigramEngine, library_of
from prep_assets.text.vocabulary import Vocabulary, from_file, from_transformers, is_tokenizer_json, published_file

_SUFFIXES = (".json", ".jinja", ".model", ".txt", ".tiktoken", ".yaml")
_NAMES = ("bos_token", "eos_token", "pad_token")
KEPT = Kept("tokenizers", 256)
"""What was found of each tokenizer."""
_RULES = 1
"""Counted up when the comparison itself changes."""


class Agreement(msgspec.Struct, frozen=True):
    """What a comparison found.

    Attributes:
        verdict: for people and manifests.
        fault: how the two differ; ``""`` where they do not.
        same: whether they are equal by definition, so that no text can tell them apart. Also where transformers cannot open the folder.
    """

    verdict: str
    fault: str = ""
    same: bool = True


def agreement(vocabulary: Vocabulary, folder: Path, kept: Kept | None = None) -> Agreement:
    """Compare a published tokenizer with what transformers makes of its folder; one that was converted, with the library of its file.

    Args:
        folder: of the tokenizer, or its file.
        kept: where verdicts are kept, by the content of the tokenizer's files, the versions of both libraries.
    """
    path = published_file(folder)

    def found() -> Agreement:
        return _compared_apart(vocabulary.name, path) if is_tokenizer_json(path) else converted(vocabulary, path)

    return found() if kept is None else remembered(kept, _key(path), Agreement, found)


def refuse_disagreement(vocabulary: Vocabulary, folder: Path) -> Agreement:
    """`agreement`, kept in the user's cache folder, and stop where the two differ.

    Raises:
        ConfigError: names a text with the ids of both, and the option that chooses.
    """
    found = agreement(vocabulary, folder, KEPT)
    if found.fault:
        remedy = REMEDY if is_tokenizer_json(published_file(folder)) else "Use the tokenizer.json that is published with it"
        raise ConfigError(f"tokenizer {vocabulary.name!r}: {found.fault}. {remedy}")
    return found


REMEDY = (
    "Say which of them the model is trained and served with: tokenizer_loader: file (the published file, as inference servers read it) or "
    "tokenizer_loader: transformers (what AutoTokenizer of the installed version makes of the folder)"
)


def _compared_apart(name: str, path: Path) -> Agreement:
    """`compare` in a process of its own: transformers imports torch where it is installed, and both take 200 MB for as long as a process lives."""
    try:
        return msgspec.json.decode(in_a_new_process(__name__, compared_as_json.__name__, name, str(path)), type=Agreement)
    except ConfigError as error:
        raise ConfigError(f"tokenizer {name!r} cannot be compared with what transformers makes of {path.parent}: {error}") from error


def compared_as_json(name: str, path: str) -> str:
    """What `compare` finds of a ``tokenizer.json``."""
    return msgspec.json.encode(compare(from_file(name, Path(path)), Path(path).parent)).decode()


def compare(vocabulary: Vocabulary, folder: Path) -> Agreement:
    """Compare a ``tokenizer.json`` with what transformers makes of the folder that it is in."""
    versions = f"transformers {version('transformers')}"
    try:
        other = from_transformers(vocabulary.name, folder)
    except ConfigError as error:
        return Agreement(f"{versions} was not compared: {error}")
    own, theirs = vocabulary.special, other.special
    if name := next((name for name in _NAMES if own.get(name) != theirs.get(name)), None):
        return Agreement("differs", f"its {name} is {own.get(name)!r} by its files and {theirs.get(name)!r} by transformers", False)
    if len({vocabulary.chat_template, other.chat_template} - {None}) > 1:
        return Agreement("differs", "its chat template is another one by its files than by transformers", False)
    start = [backend.encode("x", add_special_tokens=True).ids for backend in (vocabulary.backend, other.backend)]
    if start[0] != start[1]:
        return Agreement("differs", f"with special tokens, 'x' becomes {start[0]} by tokenizer.json and {start[1]} by {versions}", False)
    changed = [part for part in DECIDES if _comparable(vocabulary.spec[part]) != _comparable(other.spec[part])]
    if not changed:
        return Agreement(f"{versions} opens the same definition")
    texts = (*edge_set(), *typed({token["content"]: None for each in (vocabulary, other) for token in each.spec["added_tokens"]}))
    for as_text in (False, True):  # typed control tokens once as tokens and once as text
        if differs := _first_difference(texts, _ids(vocabulary, texts, as_text), _ids(other, texts, as_text)):
            text, ours, other_ids = differs
            said = f"{text}: tokenizer.json gives {ours}, transformers {other_ids}"
            return Agreement("differs", f"{versions} replaces its {', '.join(changed)}, and ids differ. {said}", False)
    return Agreement(f"{versions} replaces its {', '.join(changed)}; equal on {len(texts):,} edge texts", same=False)


def converted(vocabulary: Vocabulary, path: Path) -> Agreement:
    """Compare a converted tokenizer with the library that its file was made for.

    Raises:
        ConfigError: the library is not installed, and nothing else can prove the conversion.
    """
    package, opened = library_of(path)
    try:
        encode = opened(path)
    except ImportError as error:
        raise ConfigError(f"{path} is compared with {package}, which is not installed ({error}). pip install {package}") from error
    texts = (*edge_set(), *typed(list(vocabulary.control)[:100]))
    if vocabulary.unigram:  # the library gives the ids, and says where they stand
        engine = UnigramEngine(vocabulary.unigram)
        for text in texts:
            engine.char_spans(text)
        return Agreement(f"{package} {version(package)} tokenizes; pieces of {len(texts):,} edge texts are what it makes of them")
    if differs := _first_difference(texts, _ids(vocabulary, texts, True), encode(texts)):
        text, ours, theirs = differs
        return Agreement("differs", f"{path} cannot be converted exactly: {text} has ids {ours}, and {theirs} by {package}", False)
    return Agreement(f"{package} {version(package)} gives the same ids to {len(texts):,} edge texts")


def _ids(vocabulary: Vocabulary, texts: Sequence[str], as_text: bool) -> list[list[int]]:
    """The ids that the library gives to texts, with typed control tokens as text or as tokens."""
    vocabulary.backend.encode_special_tokens = as_text
    return [found.ids for found in vocabulary.backend.encode_batch(list(texts), add_special_tokens=False)]


def _first_difference(texts: Sequence[str], ours: Sequence[list[int]], theirs: Sequence[list[int]]) -> tuple[str, str, str] | None:
    """The first text to which two tokenizers give other ids, and its ids, shortened to be shown."""

    def few(ids: list[int]) -> str:
        return str(ids) if len(ids) <= 12 else f"{ids[:12]} …"

    parted = ((text, one, other) for text, one, other in zip(texts, ours, theirs, strict=True) if one != other)
    return next(((f"{text[:60]!r}", few(one), few(other)) for text, one, other in parted), None)


def _comparable(part: Any) -> Any:
    """A part of a ``tokenizer.json`` without what it leaves open: null, "" and false mean the same there."""
    return {key: value for key, value in part.items() if value not in (None, "", False)} if isinstance(part, dict) else part


def _key(path: Path) -> str:
    """A hash of the files that decide a tokenizer and of the libraries that read them."""
    packages = ["transformers", *([] if is_tokenizer_json(path) else [library_of(path)[0]])]
    files = sorted(each for each in path.parent.rglob("*") if each.is_file() and each.suffix in _SUFFIXES)
    hashes = [(each.relative_to(path.parent).as_posix(), hashlib.sha256(each.read_bytes()).hexdigest()) for each in files]
    return key_of(_RULES, path.name, [*map(_version, packages)], hashes)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


SAMPLE, LONGEST = 8, 20_000
"""Texts of each batch, spread over it, and the characters of each that are compared."""


class ComparedEngine:
    """`engine`, and `other` on a sample of each batch.

    Raises:
        ConfigError: from `encode`, where the two differ.
    """

    def __init__(self, engine: Engine, other: Engine, tokenizer: str) -> None:
        self.name, self.engine, self._other, self._tokenizer = engine.name, engine, other, tokenizer

    def encode(self, texts: Sequence[str]) -> Flat:
        some = [texts[at][:LONGEST] for at in np.unique(np.linspace(0, len(texts) - 1, SAMPLE).astype(int))] if texts else []
        for text in some:
            found, expected = self.engine.encode([text]).ids, self._other.encode([text]).ids
            if not np.array_equal(found, expected):
                at = int(np.argmax(found[: len(expected)] != expected[: len(found)])) if len(found) and len(expected) else 0
                raise ConfigError(
                    f"tokenizer {self._tokenizer!r}: tokenizer.json and transformers give other ids to a text of this data, {text[:80]!r}…: "
                    f"{len(found):,} and {len(expected):,} ids, which part at id number {at}. {REMEDY}"
                )
        return self.engine.encode(texts)


def compared(engines: Engines, vocabulary: Vocabulary, other: Vocabulary) -> Engines:
    """`engines`, which stop where `other` reads a text of the data otherwise."""
    against = choose_engine(other.with_control(vocabulary.written), reference_only=True)
    first = ComparedEngine(engines.first, against.first, vocabulary.name)
    rest = first if engines.rest is engines.first else ComparedEngine(engines.rest, against.rest, vocabulary.name)
    return replace(engines, first=first, rest=rest, verdict=f"{engines.verdict}; compared with transformers on a sample of the data")
