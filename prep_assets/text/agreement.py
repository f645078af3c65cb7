"""Agreement of tokenizers: a ``tokenizer.json`` with `transformers.AutoTokenizer`, any other file with the library that it was made for.

The class that a ``tokenizer_config.json`` names may replace the pre-tokenizer or the normalizer of the file: in transformers 5 SmolLM's digits
are no longer split. Both tokenizers decode to the text, so no other check can notice. Equal definitions need no comparison; otherwise both
encode the edge set, and a sample of the data as it is read.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from prep_assets.errors import ConfigError, LoadersDiffer
from prep_assets.stores.files import Kept, installed_version, key_of
from prep_assets.text.engines import Engines, choose_engine
from prep_assets.text.ids import DECIDES, Engine, Flat, remembered
from prep_assets.text.suspects import edge_set, typed
from prep_assets.text.tokenizer_files import format_of
from prep_assets.text.vocabulary import Vocabulary, from_file, from_transformers, is_tokenizer_json, published_file


def in_a_new_process(module: str, function: str, *arguments: str, **environment: str) -> str:
    """Call a function of strings in a new process with the same import path, and return the line that it returns.

    Args:
        environment: environment variables of the process.

    Raises:
        ConfigError: the process fails; with the last line of its errors.
    """
    program = f"import sys; from {module} import {function}; print({function}(*sys.argv[1:]))"
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    process = subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise ConfigError((process.stderr.strip().splitlines() or [f"it ended with {process.returncode}"])[-1])
    return process.stdout.strip().splitlines()[-1]


_SUFFIXES = (".json", ".jinja", ".model", ".txt", ".tiktoken", ".yaml")
_NAMES = ("bos_token", "eos_token", "pad_token")
KEPT = Kept("tokenizers", 256)
"""Cache of verdicts about tokenizers."""
_RULES = 1
"""Version of the comparison."""


class Agreement(msgspec.Struct, frozen=True):
    """The result of a comparison.

    Attributes:
        verdict: for people and manifests.
        fault: how the two differ; ``""`` if they do not.
        same: whether they are equal by definition, so that no text can tell them apart; also if transformers cannot open the folder.
    """

    verdict: str
    fault: str = ""
    same: bool = True


def agreement(vocabulary: Vocabulary, folder: Path, cache: Kept | None = None) -> Agreement:
    """Compare a published tokenizer with that of transformers, or a converted one with the library of its file.

    Args:
        folder: folder of the tokenizer, or its file.
        cache: cache of verdicts, by the content of the tokenizer's files and the versions of the libraries.
    """
    path = published_file(folder)

    def compare_now() -> Agreement:
        return _compare_in_new_process(vocabulary.name, path) if is_tokenizer_json(path) else converted(vocabulary, path)

    return compare_now() if cache is None else remembered(cache, _key(path), Agreement, compare_now)


def refuse_disagreement(vocabulary: Vocabulary, folder: Path) -> Agreement:
    """`agreement`, cached in the user's cache folder; raise if the two differ.

    Raises:
        LoadersDiffer: with a text and both ids, and the option that chooses.
        ConfigError: no option chooses.
    """
    result = agreement(vocabulary, folder, KEPT)
    if result.fault:
        if is_tokenizer_json(published_file(folder)):
            raise LoadersDiffer(f"tokenizer {vocabulary.name!r}: {result.fault}. {REMEDY}")
        raise ConfigError(f"tokenizer {vocabulary.name!r}: {result.fault}. Use the tokenizer.json that is published with it")
    return result


REMEDY = (
    "Say which of them the model is trained and served with: tokenizer_loader: file (the published file, as inference servers read it) or "
    "tokenizer_loader: transformers (what AutoTokenizer of the installed version makes of the folder)"
)


def _compare_in_new_process(name: str, path: Path) -> Agreement:
    """`compare` in a new process: transformers imports torch if it is installed, and both take 200 MB until the process ends."""
    try:
        return msgspec.json.decode(in_a_new_process(__name__, compared_as_json.__name__, name, str(path)), type=Agreement)
    except ConfigError as error:
        raise ConfigError(f"tokenizer {name!r} cannot be compared with what transformers makes of {path.parent}: {error}") from error


def compared_as_json(name: str, path: str) -> str:
    """`compare` for a ``tokenizer.json``, as JSON."""
    return msgspec.json.encode(compare(from_file(name, Path(path)), Path(path).parent)).decode()


def compare(vocabulary: Vocabulary, folder: Path) -> Agreement:
    """Compare a ``tokenizer.json`` with the tokenizer that transformers opens from its folder."""
    versions = f"transformers {version('transformers')}"
    try:
        theirs = from_transformers(vocabulary.name, folder)
    except ConfigError as error:
        return Agreement(f"{versions} was not compared: {error}")
    special, their_special = vocabulary.special, theirs.special
    if name := next((name for name in _NAMES if special.get(name) != their_special.get(name)), None):
        return Agreement(
            "differs", f"its {name} is {special.get(name)!r} by its files and {their_special.get(name)!r} by transformers", False
        )
    if len({vocabulary.chat_template, theirs.chat_template} - {None}) > 1:
        return Agreement("differs", "its chat template is another one by its files than by transformers", False)
    processed_ids = [backend.encode("x", add_special_tokens=True).ids for backend in (vocabulary.backend, theirs.backend)]
    if processed_ids[0] != processed_ids[1]:
        return Agreement(
            "differs", f"with special tokens, 'x' becomes {processed_ids[0]} by tokenizer.json and {processed_ids[1]} by {versions}", False
        )
    changed = [part for part in DECIDES if _comparable(vocabulary.spec[part]) != _comparable(theirs.spec[part])]
    if not changed:
        return Agreement(f"{versions} opens the same definition")
    texts = (
        *edge_set(),
        *typed({token["content"]: None for tokenizer in (vocabulary, theirs) for token in tokenizer.spec["added_tokens"]}),
    )
    for as_text in (False, True):  # typed control tokens as tokens, then as text
        if difference := _first_difference(texts, _ids(vocabulary, texts, as_text), _ids(theirs, texts, as_text)):
            text, our_ids, their_ids = difference
            example = f"{text}: tokenizer.json gives {our_ids}, transformers {their_ids}"
            return Agreement("differs", f"{versions} replaces its {', '.join(changed)}, and ids differ. {example}", False)
    return Agreement(f"{versions} replaces its {', '.join(changed)}; equal on {len(texts):,} edge texts", same=False)


def converted(vocabulary: Vocabulary, path: Path) -> Agreement:
    """Compare a converted tokenizer with the library that its file was made for.

    Raises:
        ConfigError: the library is not installed, so the conversion cannot be proven.
    """
    format = format_of(path)
    package = format.package
    try:
        encode = format.open_encoder(path)
    except ImportError as error:
        raise ConfigError(f"{path} is compared with {package}, which is not installed ({error}). pip install {package}") from error
    texts = (*edge_set(), *typed(list(vocabulary.control)[:100]))
    if vocabulary.encoding is not None:  # the library itself gives ids and spans
        engine = vocabulary.encoding.engine()
        for text in texts:
            engine.char_spans(text)
        return Agreement(f"{package} {version(package)} tokenizes; pieces of {len(texts):,} edge texts are what it makes of them")
    if difference := _first_difference(texts, _ids(vocabulary, texts, True), encode(texts)):
        text, our_ids, their_ids = difference
        return Agreement("differs", f"{path} cannot be converted exactly: {text} has ids {our_ids}, and {their_ids} by {package}", False)
    return Agreement(f"{package} {version(package)} gives the same ids to {len(texts):,} edge texts")


def _ids(vocabulary: Vocabulary, texts: Sequence[str], as_text: bool) -> list[list[int]]:
    """The ids of texts by the library, with typed control tokens as text or as tokens."""
    vocabulary.backend.encode_special_tokens = as_text
    return [encoding.ids for encoding in vocabulary.backend.encode_batch(list(texts), add_special_tokens=False)]


def _first_difference(texts: Sequence[str], ours: Sequence[list[int]], theirs: Sequence[list[int]]) -> tuple[str, str, str] | None:
    """The first text with different ids, and both ids, shortened for messages."""

    def shorten(ids: list[int]) -> str:
        return str(ids) if len(ids) <= 12 else f"{ids[:12]} …"

    differences = ((text, our_ids, their_ids) for text, our_ids, their_ids in zip(texts, ours, theirs, strict=True) if our_ids != their_ids)
    return next(((f"{text[:60]!r}", shorten(our_ids), shorten(their_ids)) for text, our_ids, their_ids in differences), None)


def _comparable(part: Any) -> Any:
    """A part of a ``tokenizer.json`` without unset values: null, "" and false mean the same there."""
    return {key: value for key, value in part.items() if value not in (None, "", False)} if isinstance(part, dict) else part


def _key(path: Path) -> str:
    """The cache key: a hash of the files that decide a tokenizer and of the versions of the libraries that read them."""
    packages = ["transformers", *([] if is_tokenizer_json(path) else [format_of(path).package])]
    files = sorted(file for file in path.parent.rglob("*") if file.is_file() and file.suffix in _SUFFIXES)
    hashes = [(file.relative_to(path.parent).as_posix(), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]
    return key_of(_RULES, path.name, [*map(installed_version, packages)], hashes)


SAMPLE, LONGEST = 8, 20_000
"""How many texts of each batch are compared, spread evenly, and how many characters of each text."""


class ComparedEngine:
    """An engine that compares a sample of each batch with another one.

    Raises:
        ConfigError: from `encode`, if the two differ.
    """

    def __init__(self, engine: Engine, other: Engine, tokenizer: str) -> None:
        self.name, self.engine, self._other, self._tokenizer = engine.name, engine, other, tokenizer

    def encode(self, texts: Sequence[str]) -> Flat:
        sample = [texts[at][:LONGEST] for at in np.unique(np.linspace(0, len(texts) - 1, SAMPLE).astype(int))] if texts else []
        for text in sample:
            ids, expected = self.engine.encode([text]).ids, self._other.encode([text]).ids
            if not np.array_equal(ids, expected):
                at = int(np.argmax(ids[: len(expected)] != expected[: len(ids)])) if len(ids) and len(expected) else 0
                raise ConfigError(
                    f"tokenizer {self._tokenizer!r}: tokenizer.json and transformers give other ids to a text of this data, {text[:80]!r}…: "
                    f"{len(ids):,} and {len(expected):,} ids, which part at id number {at}. {REMEDY}"
                )
        return self.engine.encode(texts)


def compared(engines: Engines, vocabulary: Vocabulary, other: Vocabulary) -> Engines:
    """`engines` that raise if `other` encodes a text of the data otherwise."""
    other_engines = choose_engine(other.with_control(vocabulary.written), reference_only=True)
    first = ComparedEngine(engines.first, other_engines.first, vocabulary.name)
    rest = first if engines.rest is engines.first else ComparedEngine(engines.rest, other_engines.rest, vocabulary.name)
    return replace(engines, first=first, rest=rest, verdict=f"{engines.verdict}; compared with transformers on a sample of the data")
