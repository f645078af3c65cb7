"""What is proven of a tokenizer that is a class of the user's own before a record is read; ids of single texts are proven as they are made.

On the edge set and on typed control tokens: the ids are its tokens, ordinary ones; they stand for the text, wherever the class can represent it; its own
`decode` gives the text back; the same instance gives the same ids again, in another order, and so does a new process with another
hash seed. Nothing proves that the ids are those that a model was trained with: there is no published file to compare with.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from prep_assets.errors import ConfigError
from prep_assets.tokenization.code_tokenizer import Code, Opened
from prep_assets.tokenization.edge_set import edge_set, typed
from prep_assets.tokenization.new_process import in_a_new_process


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
    texts = _texts(one)
    ids: list[list[int]] = []
    exact = 0
    for text in texts:
        ids.append(one.ids(text).tolist())
        if one.bytes_of(ids[-1]) == text.encode():
            exact += 1
            _check_decoded(one, text, ids[-1])
    if not exact:
        raise code.fault(f"the tokens of none of {len(texts):,} texts stand for the text")
    for text, found in zip(reversed(texts), reversed(ids), strict=True):
        if (again := one.ids(text).tolist()) != found:
            raise code.fault(f"{text[:60]!r} has the ids {found[:8]}, and {again[:8]} when it is asked after other texts")
    if _in_a_new_process(code) != _digest(one, ids):
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


def _check_decoded(opened: Opened, text: str, ids: Sequence[int]) -> None:
    try:
        decoded = opened.instance.decode(list(ids))
    except Exception as error:  # user code may raise anything
        raise opened.code.fault(f"decode({list(ids)[:8]}) raises {type(error).__name__}: {error}") from error
    if decoded != text:
        raise opened.code.fault(f"{text[:60]!r} has ids that stand for it, and decode gives {str(decoded)[:60]!r}")


def _in_a_new_process(code: Code) -> str:
    """What `digest_of` finds there, with another seed of hashes and the same import path."""
    try:
        return in_a_new_process(__name__, digest_of.__name__, code.name, str(code.folder), PYTHONHASHSEED="271828")
    except ConfigError as error:
        raise ConfigError(f"tokenizer_class {code.name}: a new process cannot use it: {error}") from error
