"""Tokenizers that are a class of the user's own, run in a process of their own and proven before use."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError
from prep_assets.schemas.registry import own_code_hash, own_function, within_limits
from prep_assets.text.ids import ALPHABET, Flat
from prep_assets.text.spans import characters
from prep_assets.text.suspects import edge_set, typed
from prep_assets.text.tokenizer_files import DEFAULT, chat_templates, special_tokens
from prep_assets.text.vocabulary import CODE, Vocabulary

# Work that another Python process does, because it must know nothing of this one, or because this one must not keep what the work imports.


def in_a_new_process(module: str, function: str, *arguments: str, **environment: str) -> str:
    """What a function of texts gives, a line of text, in a process with the same import path.

    Args:
        environment: variables that are set there.

    Raises:
        ConfigError: it fails there; the last line that it says.
    """
    called = f"import sys; from {module} import {function}; print({function}(*sys.argv[1:]))"
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", called, *arguments],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ConfigError((done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1])
    return done.stdout.strip().splitlines()[-1]


# Tokenizers that are a class of the user's own, ``package.module:Class``, for what no ``tokenizer.json`` can say.
#
#     class Class:
#         def __init__(self, folder: Path) -> None          the folder of the tokenizer
#         def tokens(self) -> Mapping[int, bytes]           its ordinary tokens: id → the bytes that it stands for, always
#         def control(self) -> Mapping[str, int]            its control tokens: text → id
#         def encode(self, text: str) -> Sequence[int]      ids of ordinary text: nothing is added, and what looks like a control token is text
#         def decode(self, ids: Sequence[int]) -> str
#
# Its own encoding is the reference. As ids stand for fixed bytes, all else follows from its tables: spans, masks and decoding. What is
# proven of it before a record is read stands below; the engine here proves for each text that the ids are those bytes.

KEY = "tokenizer_class"
_LOADED: dict[str, str | None] = {}
"""The code of each class as this process has imported it."""


@dataclass(frozen=True)
class Code:
    """A tokenizer's class.

    Attributes:
        name: ``package.module:Class``.
        folder: what it is given.
        hash: of its module, and of every module of the project that it imports.
        files: of the files in its folder.
    """

    name: str
    folder: Path
    hash: str
    files: str

    def opened(self) -> Opened:
        """A new instance.

        Raises:
            ConfigError: there is none, or its tables cannot be.
        """
        instance = own_function(KEY, self.name)(self.folder)
        try:
            tables = (within_limits(KEY, self.name, getattr(instance, table))() for table in ("tokens", "control"))
            tokens, control = {int(number): bytes(own) for number, own in dict(next(tables)).items()}, dict(next(tables))
        except ConfigError:
            raise
        except Exception as error:  # user code may raise anything
            raise self.fault(f"gives no tables of its tokens: {type(error).__name__}: {error}") from error
        listed = [*tokens, *control.values()]
        if not all(isinstance(text, str) and isinstance(number, int) for text, number in control.items()):
            raise self.fault("control() gives texts with their ids")
        if not tokens or len(set(listed)) != len(listed) or min(listed) < 0:
            raise self.fault(
                f"{len(listed):,} tokens with {len(set(listed)):,} ids from {min(listed, default=0)} on; each needs one of its own"
            )
        if b"" in tokens.values() or "" in control or len(set(tokens.values())) != len(tokens):
            raise self.fault("two tokens stand for the same bytes, or one stands for none")
        return Opened(self, instance, tokens, control)

    def spec(self, backend: Any) -> dict[str, Any]:
        """What stands in the place of a ``tokenizer.json``, of a tokenizer that knows its tokens."""
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        added = [
            {"id": number, "content": each.content, **flags, "special": True} for number, each in backend.get_added_tokens_decoder().items()
        ]
        control = {token["content"] for token in added}
        entries = {text: number for text, number in sorted(backend.get_vocab(with_added_tokens=False).items()) if text not in control}
        empty = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor"))
        model = {"type": CODE, "class": self.name, "code": self.hash, "files": self.files, "vocab": entries}
        return {**empty, "added_tokens": added, "decoder": {"type": "ByteLevel"}, "model": model}

    def fault(self, what: str) -> ConfigError:
        """An error that names the class."""
        return ConfigError(f"tokenizer_class {self.name}: {what}. docs/tokenizers.md says what such a class must give")


@dataclass(frozen=True)
class Opened:
    """One instance of a class, with its tables."""

    code: Code
    instance: Any
    tokens: Mapping[int, bytes]
    control: Mapping[str, int]

    def ids(self, text: str) -> npt.NDArray[np.uint32]:
        """The ids of one ordinary text.

        Raises:
            ConfigError: it gives none, or ids that are not among its tokens.
        """
        try:
            found = [int(number) for number in within_limits(KEY, self.code.name, self.instance.encode)(text)]
        except ConfigError:
            raise
        except Exception as error:  # user code may raise anything
            raise self.code.fault(f"encode({text[:60]!r}) raises {type(error).__name__}: {error}") from error
        strange = next((number for number in found if number not in self.tokens), None)
        if strange is not None:
            control = next((f", the control token {each!r}" for each, number in self.control.items() if number == strange), "")
            raise self.code.fault(f"encode({text[:60]!r}) gives id {strange}{control}, which none of its ordinary tokens has")
        return np.array(found, np.uint32)

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        """What ids stand for."""
        return b"".join(map(self.tokens.__getitem__, ids))


class CodeEngine:
    """The class itself as an engine. A text whose ids do not give its bytes back gets none, so that its record is refused (``lossy_tokenizer``)."""

    def __init__(self, code: Code) -> None:
        self.code, self.name = code, code.name

    @cached_property
    def _opened(self) -> Opened:
        return self.code.opened()

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        return Flat.of([self._exact(text) for text in texts])

    def char_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of one text and the character span ``(start, end)`` of each; whole characters, where a token is a part of one."""
        ids = self._exact(text).tolist()
        ends = np.cumsum([len(self._opened.tokens[number]) for number in ids], dtype=np.int64)
        starts, stops = characters(text, np.concatenate([[0], ends[:-1]]).astype(np.int64)[: len(ids)], ends)
        return ids, list(zip(starts.tolist(), stops.tolist(), strict=True))

    def _exact(self, text: str) -> npt.NDArray[np.uint32]:
        ids = self._opened.ids(text)
        return ids if self._opened.bytes_of(ids.tolist()) == text.encode() else ids[:0]


def from_code(name: str, folder: Path, path: str) -> Vocabulary:
    """The tokenizer that a class makes of a folder.

    Args:
        name: of the tokenizer, for messages.
        path: ``package.module:Class``.

    Raises:
        ConfigError: it cannot be loaded, or its tables cannot be.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models

    found = own_code_hash(path)
    if _LOADED.setdefault(path, found) != found:
        raise ConfigError(f"tokenizer_class {path}: its code has changed since this process loaded it. Start again")
    if not folder.is_dir():
        raise ConfigError(f"tokenizer_class {path}: needs a folder as tokenizer, and there is none at {folder}")
    if found is None:
        raise ConfigError(
            f"tokenizer_class {path}: no module {path.rpartition(':')[0]} with a source file is importable from here. Put its folder on PYTHONPATH"
        )
    code = Code(path, folder, found, _files(folder))
    opened = code.opened()
    spelled = {"".join(ALPHABET[byte] for byte in own): number for number, own in opened.tokens.items()}
    if both := sorted(spelled.keys() & opened.control.keys()):
        raise code.fault(f"{both[0]!r} is a control token and an ordinary one")
    special = {key: text for key, text in special_tokens(folder).items() if text in opened.control}
    # all of a tokenizer but its encoding: names, ids and bytes
    backend = Tokenizer(models.BPE(vocab={**spelled, **opened.control}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in opened.control])
    templates = chat_templates(folder)
    only = templates.get(DEFAULT) if len(templates) < 2 else None
    return Vocabulary(name, backend, special, only, templates={} if only else templates, file=path, code=code)


def _files(folder: Path) -> str:
    """A hash of what a class is given."""
    digest = hashlib.sha256()
    for each in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(each.relative_to(folder).as_posix().encode() + b"\0" + hashlib.sha256(each.read_bytes()).digest())
    return digest.hexdigest()


# What is proven of a tokenizer that is a class of the user's own before a record is read; ids of single texts are proven as they are made.
#
# On the edge set and on typed control tokens: the ids are its tokens, ordinary ones; they stand for the text, wherever the class can represent it; its own
# `decode` gives the text back; the same instance gives the same ids again, in another order, and so does a new process with another hash seed. Nothing proves
# that the ids are those that a model was trained with: there is no published file to compare with.


def prove(code: Code, cache: Path | None = None) -> str:
    """Prove a class, and say what was proven.

    Args:
        cache: folder for what was found, by the code, its files, and the version of Python.

    Raises:
        ConfigError: names the text and what is wrong.
    """
    key = hashlib.sha256(json.dumps([code.name, code.hash, code.files, sys.version]).encode()).hexdigest()[:24]
    cached = None if cache is None else cache / f"code-{key}.txt"
    if cached is not None and cached.is_file():
        return cached.read_text("utf-8")
    one = code.opened()
    if (one.tokens, one.control) != ((other := code.opened()).tokens, other.control):
        raise code.fault("two instances have other tokens")
    texts, exact = _texts(one), 0
    ids: list[list[int]] = []
    for text in texts:
        ids.append(one.ids(text).tolist())
        if one.bytes_of(ids[-1]) != text.encode():
            continue
        exact += 1
        try:
            decoded = one.instance.decode(list(ids[-1]))
        except Exception as error:  # user code may raise anything
            raise code.fault(f"decode({ids[-1][:8]}) raises {type(error).__name__}: {error}") from error
        if decoded != text:
            raise code.fault(f"{text[:60]!r} has ids that stand for it, and decode gives {str(decoded)[:60]!r}")
    if not exact:
        raise code.fault(f"the tokens of none of {len(texts):,} texts stand for the text")
    for text, found in zip(reversed(texts), reversed(ids), strict=True):
        if (again := one.ids(text).tolist()) != found:
            raise code.fault(f"{text[:60]!r} has the ids {found[:8]}, and {again[:8]} when it is asked after other texts")
    try:  # with another seed of hashes, and the same import path
        digest = in_a_new_process(__name__, digest_of.__name__, code.name, str(code.folder), PYTHONHASHSEED="271828")
    except ConfigError as error:
        raise ConfigError(f"tokenizer_class {code.name}: a new process cannot use it: {error}") from error
    if digest != _digest(one, ids):
        raise code.fault(f"a new process gives other tokens, or other ids to {len(texts):,} texts")
    proven = f"{code.name}: its own encoding; {exact:,} of {len(texts):,} edge texts come back whole, alike in every instance and process"
    if cached is not None:
        cached.parent.mkdir(parents=True, exist_ok=True)
        cached.write_text(proven, "utf-8")
    return proven


def digest_of(name: str, folder: str) -> str:
    """A hash of the tables of a class, and of its ids of all texts."""
    opened = Code(name, Path(folder), "", "").opened()
    return _digest(opened, [opened.ids(text).tolist() for text in _texts(opened)])


def _texts(opened: Opened) -> tuple[str, ...]:
    return (*typed(list(opened.control)[:100]), *edge_set())


def _digest(opened: Opened, ids: Sequence[Sequence[int]]) -> str:
    tables = [sorted((number, own.hex()) for number, own in opened.tokens.items()), sorted(opened.control.items())]
    return hashlib.sha256(json.dumps([tables, list(ids)]).encode()).hexdigest()
