"""Tokenizers that are a Python class of the user, proven before use."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.errors import ConfigError
from prep_assets.own_code import own_code_hash, own_function, within_limits
from prep_assets.text.agreement import in_a_new_process
from prep_assets.text.ids import ALPHABET, Flat
from prep_assets.text.spans import characters
from prep_assets.text.suspects import edge_set, typed
from prep_assets.text.tokenizer_files import chat_templates, special_tokens
from prep_assets.text.vocabulary import Vocabulary, in_memory, register_loader

# Tokenizers that are a class of the user, ``package.module:Class``, for what no ``tokenizer.json`` can express.
#
#     class Class:
#         def __init__(self, folder: Path) -> None          the folder of the tokenizer
#         def tokens(self) -> Mapping[int, bytes]           its ordinary tokens: id → its fixed bytes
#         def control(self) -> Mapping[str, int]            its control tokens: text → id
#         def encode(self, text: str) -> Sequence[int]      ids of ordinary text: nothing is added, and a typed control token is text
#         def decode(self, ids: Sequence[int]) -> str
#
# Its `encode` is the reference. As ids stand for fixed bytes, spans, masks and decoding follow from its tables. `prove` checks the class before a record is
# read; the engine checks for each text that the ids stand for its bytes.

KEY = "tokenizer_class"
_LOADED: dict[str, str | None] = {}
"""Class → hash of its code as imported by this process."""


class Code(Struct, frozen=True):
    """The class of a tokenizer.

    Attributes:
        name: ``package.module:Class``.
        folder: the folder that it gets.
        hash: hash of its module, and of every module of the project that it imports.
        files: hash of the files in its folder.
    """

    name: str
    folder: Path
    hash: str
    files: str
    why = "the tokenizer itself"
    digest = ""  # its spec holds the hashes
    exact = True

    @property
    def what(self) -> str:
        """The class, for messages."""
        return f"the class {self.name}"

    def opened(self) -> Opened:
        """Open a new instance.

        Raises:
            ConfigError: the class cannot be loaded, or its tables are invalid.
        """
        instance = own_function(KEY, self.name)(self.folder)
        try:
            tables = (within_limits(KEY, self.name, getattr(instance, table))() for table in ("tokens", "control"))
            tokens, control = {int(number): bytes(token) for number, token in dict(next(tables)).items()}, dict(next(tables))
        except ConfigError:
            raise
        except Exception as error:  # user code may raise anything
            raise self.fault(f"gives no tables of its tokens: {type(error).__name__}: {error}") from error
        ids = [*tokens, *control.values()]
        if not all(isinstance(text, str) and isinstance(number, int) for text, number in control.items()):
            raise self.fault("control() gives texts with their ids")
        if not tokens or len(set(ids)) != len(ids) or min(ids) < 0:
            raise self.fault(f"{len(ids):,} tokens with {len(set(ids)):,} ids from {min(ids, default=0)} on; each needs its own")
        if b"" in tokens.values() or "" in control or len(set(tokens.values())) != len(tokens):
            raise self.fault("two tokens stand for the same bytes, or one stands for none")
        return Opened(self, instance, tokens, control)

    def spec(self, backend: Any) -> dict[str, Any]:
        """The equivalent of a ``tokenizer.json``. `backend`: a tokenizer with all tokens."""
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        added = [
            {"id": number, "content": added_token.content, **flags, "special": True}
            for number, added_token in backend.get_added_tokens_decoder().items()
        ]
        control = {token["content"] for token in added}
        entries = {text: number for text, number in sorted(backend.get_vocab(with_added_tokens=False).items()) if text not in control}
        unset = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor"))
        model = {"type": "Code", "class": self.name, "code": self.hash, "files": self.files, "vocab": entries}
        return {**unset, "added_tokens": added, "decoder": {"type": "ByteLevel"}, "model": model}

    def engine(self) -> CodeEngine:
        """The engine of all texts."""
        return CodeEngine(self)

    def normalized(self, text: str) -> str:
        """The text itself."""
        return text

    def fault(self, what: str) -> ConfigError:
        """An error about the class."""
        return ConfigError(f"tokenizer_class {self.name}: {what}. docs/tokenizers.md says what such a class must give")


class Opened(Struct, frozen=True):
    """An instance of a class, with its tables."""

    code: Code
    instance: Any
    tokens: Mapping[int, bytes]
    control: Mapping[str, int]

    def ids(self, text: str) -> npt.NDArray[np.uint32]:
        """The ids of one ordinary text, uint32[t].

        Raises:
            ConfigError: `encode` raises, or returns ids that are not among its ordinary tokens.
        """
        try:
            ids = [int(number) for number in within_limits(KEY, self.code.name, self.instance.encode)(text)]
        except ConfigError:
            raise
        except Exception as error:  # user code may raise anything
            raise self.code.fault(f"encode({text[:60]!r}) raises {type(error).__name__}: {error}") from error
        unknown = next((number for number in ids if number not in self.tokens), None)
        if unknown is not None:
            control = next((f", the control token {name!r}" for name, number in self.control.items() if number == unknown), "")
            raise self.code.fault(f"encode({text[:60]!r}) gives id {unknown}{control}, which none of its ordinary tokens has")
        return np.array(ids, np.uint32)

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        """The bytes that `ids` stand for."""
        return b"".join(map(self.tokens.__getitem__, ids))


class CodeEngine:
    """The class as an engine. A text whose ids do not stand for its bytes gets no ids, so that its record is rejected (``lossy_tokenizer``)."""

    def __init__(self, code: Code) -> None:
        self.code, self.name = code, code.name

    @cached_property
    def _opened(self) -> Opened:
        return self.code.opened()

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        return Flat.of([self._exact_ids(text) for text in texts])

    def char_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of one text and the character span ``(start, end)`` of each; a token inside a character has the span of that character."""
        ids = self._exact_ids(text).tolist()
        ends = np.cumsum([len(self._opened.tokens[number]) for number in ids], dtype=np.int64)
        starts, stops = characters(text, np.concatenate([[0], ends[:-1]]).astype(np.int64)[: len(ids)], ends)
        return ids, list(zip(starts.tolist(), stops.tolist(), strict=True))

    def _exact_ids(self, text: str) -> npt.NDArray[np.uint32]:
        ids = self._opened.ids(text)
        return ids if self._opened.bytes_of(ids.tolist()) == text.encode() else ids[:0]


def load_class(name: str, folder: Path, path: str, cache: Path) -> Vocabulary:
    """Open a folder with the user's class ``package.module:Class``, and prove it.

    Raises:
        ConfigError: the class cannot be loaded, its tables are invalid, or a proof fails.
    """
    code, backend = open_code(path, folder)
    prove(code, cache)
    control = {token.content for token in backend.get_added_tokens_decoder().values()}
    special = {key: text for key, text in special_tokens(folder).items() if text in control}
    return replace(in_memory(name, backend, special, chat_templates(folder), path), encoding=code)


def open_code(path: str, folder: Path) -> tuple[Code, Any]:
    """The class ``package.module:Class`` for a folder, and a `tokenizers.Tokenizer` of its tokens, which cannot encode.

    Raises:
        ConfigError: the class cannot be loaded, or its tables are invalid.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models

    code_hash = own_code_hash(path)
    if _LOADED.setdefault(path, code_hash) != code_hash:
        raise ConfigError(f"tokenizer_class {path}: its code has changed since this process loaded it. Start again")
    if not folder.is_dir():
        raise ConfigError(f"tokenizer_class {path}: needs a folder as tokenizer, and there is none at {folder}")
    if code_hash is None:
        raise ConfigError(
            f"tokenizer_class {path}: no module {path.rpartition(':')[0]} with a source file is importable from here. Put its folder on PYTHONPATH"
        )
    code = Code(path, folder, code_hash, _files(folder))
    opened = code.opened()
    token_texts = {"".join(ALPHABET[byte] for byte in token): number for number, token in opened.tokens.items()}
    if in_both := sorted(token_texts.keys() & opened.control.keys()):
        raise code.fault(f"{in_both[0]!r} is a control token and an ordinary one")
    # a tokenizer without an encoding: texts, ids and bytes of tokens
    backend = Tokenizer(models.BPE(vocab={**token_texts, **opened.control}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in opened.control])
    return code, backend


def _files(folder: Path) -> str:
    """A hash of the folder that a class gets."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


# The proof of a tokenizer class before a record is read; ids of single texts are checked when they are made.
#
# On the edge set and on typed control tokens: the ids are ordinary tokens of the class; they stand for the text if the class can represent it; `decode`
# returns the text; the same instance gives the same ids in another order, and so does a new process with another hash seed. Nothing proves that the ids are
# those that a model was trained with: there is no published file to compare with.


def prove(code: Code, cache: Path | None = None) -> str:
    """Prove a class, and return the verdict.

    Args:
        cache: folder of cached verdicts, by code, files, and Python version.

    Raises:
        ConfigError: with the text and the fault.
    """
    key = hashlib.sha256(json.dumps([code.name, code.hash, code.files, sys.version]).encode()).hexdigest()[:24]
    cached = None if cache is None else cache / f"code-{key}.txt"
    if cached is not None and cached.is_file():
        return cached.read_text("utf-8")
    opened = code.opened()
    if (opened.tokens, opened.control) != ((second := code.opened()).tokens, second.control):
        raise code.fault("two instances have other tokens")
    texts, exact = _proof_texts(opened), 0
    ids: list[list[int]] = []
    for text in texts:
        ids.append(opened.ids(text).tolist())
        if opened.bytes_of(ids[-1]) != text.encode():
            continue
        exact += 1
        try:
            decoded = opened.instance.decode(list(ids[-1]))
        except Exception as error:  # user code may raise anything
            raise code.fault(f"decode({ids[-1][:8]}) raises {type(error).__name__}: {error}") from error
        if decoded != text:
            raise code.fault(f"{text[:60]!r} has ids that stand for it, and decode gives {str(decoded)[:60]!r}")
    if not exact:
        raise code.fault(f"the tokens of none of {len(texts):,} texts stand for the text")
    for text, first_ids in zip(reversed(texts), reversed(ids), strict=True):
        if (second_ids := opened.ids(text).tolist()) != first_ids:
            raise code.fault(f"{text[:60]!r} has the ids {first_ids[:8]}, and {second_ids[:8]} when it is asked after other texts")
    try:  # with another hash seed, and the same import path
        digest = in_a_new_process(__name__, digest_of.__name__, code.name, str(code.folder), PYTHONHASHSEED="271828")
    except ConfigError as error:
        raise ConfigError(f"tokenizer_class {code.name}: a new process cannot use it: {error}") from error
    if digest != _digest(opened, ids):
        raise code.fault(f"a new process gives other tokens, or other ids to {len(texts):,} texts")
    verdict = f"{code.name}: its own encoding; {exact:,} of {len(texts):,} edge texts come back whole, alike in every instance and process"
    if cached is not None:
        cached.parent.mkdir(parents=True, exist_ok=True)
        cached.write_text(verdict, "utf-8")
    return verdict


def digest_of(name: str, folder: str) -> str:
    """A hash of the tables of a class, and of its ids of all proof texts."""
    opened = Code(name, Path(folder), "", "").opened()
    return _digest(opened, [opened.ids(text).tolist() for text in _proof_texts(opened)])


def _proof_texts(opened: Opened) -> tuple[str, ...]:
    return (*typed(list(opened.control)[:100]), *edge_set())


def _digest(opened: Opened, ids: Sequence[Sequence[int]]) -> str:
    tables = [sorted((number, token.hex()) for number, token in opened.tokens.items()), sorted(opened.control.items())]
    return hashlib.sha256(json.dumps([tables, list(ids)]).encode()).hexdigest()


register_loader("code", load_class)
