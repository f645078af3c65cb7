"""Code points and texts on which engines may part, and what was found about an engine."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, groupby
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.stores import files
from prep_assets.stores.files import Kept
from prep_assets.text.ids import Engine

# Code points at which the fast engine and the reference may part, so that a text that holds one goes to the reference.
#
# Each code point of `TRIED` is encoded by both: alone, doubled and between letters, after spaces. The suspects
# are those that differ, and all that are not tried: private planes and what no version of Unicode has given out.
#
# Engines part where one has newer tables of Unicode. For a tokenizer that composes (NFC), a character is a suspect also where the reference's
# normalizer and Python's disagree about it, or Python does not know it: the rules of Unicode promise that a composed text stays composed in later
# versions if all its characters are known.

TRIED = ((0, 0xD800), (0xE000, 0x14680), (0x16800, 0x1FC00), (0x20000, 0x323B0), (0xE0000, 0xE01F0))
"""Ranges of code points: all but surrogates that Unicode has given out, up to version 17."""
_ALL = 0x110000
_BLOCK = 64
_SIGNS_END = "\u3000"
"""Characters before this one are tried beside an apostrophe and between digits as well."""

Table = npt.NDArray[np.bool_]
Ranges = tuple[tuple[int, int], ...]


def suspect_table(differing: Ranges) -> Table:
    """Whether each code point is a suspect, shape (0x110000,), where those of `differing` (first, one past the last) are known to differ."""
    table = np.ones(_ALL, bool)
    for first, end in TRIED:
        table[first:end] = False
    for first, end in differing:
        table[first:end] = True
    return table


def differing(fast: Engine, reference: Engine, normalizer: Any, *, numerals: bool) -> Ranges:
    """The code points of `TRIED` at which the two engines part.

    Args:
        normalizer: the reference's, where it composes; else `None`.
        numerals: whether it matters which characters are numerals, which Python has to know then.
    """
    tried = [chr(point) for first, end in TRIED for point in range(first, end)]

    def forms(char: str) -> str:
        if numerals and not char.isascii() and unicodedata.category(char).startswith("N"):
            return f"x{char} x{char}b"  # what else there is of them does not come to the fast engine (`routed`)
        shown = (char, char * 2, f"a{char}b", *((f"'{char}1{char}2",) if char < _SIGNS_END else ()))
        # only composed text comes to an engine that does not compose
        return " ".join(shown if normalizer is None else [text for text in shown if unicodedata.is_normalized("NFC", text)])

    found = set(_parting(tried, forms, fast, reference))
    if normalizer is not None:
        found.update(_otherwise_composed(tried, normalizer))
    if normalizer is not None or numerals:
        found.update(char for char in tried if unicodedata.category(char) == "Cn")
    return _ranges(sorted(map(ord, found)))


def _parting(chars: Sequence[str], forms: Callable[[str], str], fast: Engine, reference: Engine) -> Iterator[str]:
    """The characters whose forms have other ids: first in blocks, then those of the blocks that differ one by one."""
    blocks = _unequal_blocks([chars[at : at + _BLOCK] for at in range(0, len(chars), _BLOCK)], forms, fast, reference)
    doubtful = list(chain.from_iterable(blocks))
    alone = {doubtful[at] for at in _unequal(list(map(forms, doubtful)), fast, reference)}
    yield from alone
    # a block may differ though none of its characters does alone
    unexplained = [[char for char in block if char not in alone] for block in blocks]
    yield from chain.from_iterable(_unequal_blocks(unexplained, forms, fast, reference))


def _unequal_blocks(blocks: Sequence[Sequence[str]], forms: Callable[[str], str], fast: Engine, reference: Engine) -> list[Sequence[str]]:
    return [blocks[at] for at in _unequal(["\n".join(map(forms, block)) for block in blocks], fast, reference)]


def _unequal(texts: Sequence[str], fast: Engine, reference: Engine) -> list[int]:
    a, b = fast.encode(texts), reference.encode(texts)
    return unequal_texts(a, b)


def unequal_texts(a: Any, b: Any) -> list[int]:
    """Numbers of the texts that have other ids in one result than in the other."""
    bounds = zip(a.offsets[:-1], a.offsets[1:], b.offsets[:-1], b.offsets[1:], strict=True)
    return [at for at, (i, j, k, m) in enumerate(bounds) if not np.array_equal(a.ids[i:j], b.ids[k:m])]


def _otherwise_composed(chars: Sequence[str], normalizer: Any) -> Iterator[str]:
    """Characters on which the normalizer and Python differ: how they are composed, and whether they change places with marks."""
    blocks = [chars[at : at + _BLOCK] for at in range(0, len(chars), _BLOCK)]
    for block in blocks:
        if _disagree("\n".join(map(_marked, block)), normalizer):
            for char in block:
                if _disagree(_marked(char), normalizer):
                    yield char
                    yield from unicodedata.normalize("NFD", char)


def _marked(char: str) -> str:
    """A character, decomposed and not, after a mark of high combining class and before one of the lowest."""
    return f"{char}\n{unicodedata.normalize('NFD', char)}\na\u0315{char}\na{char}\u0334"


def _disagree(text: str, normalizer: Any) -> bool:
    return bool(normalizer.normalize_str(text) != unicodedata.normalize("NFC", text))


def _ranges(points: Iterable[int]) -> Ranges:
    runs = groupby(enumerate(points), key=lambda item: item[1] - item[0])
    listed = [[point for _, point in run] for _, run in runs]
    return tuple((run[0], run[-1] + 1) for run in listed)


# Texts on which tokenizers are known to disagree: the gate that a fast engine must pass before it is used.

_PIECES = (
    *(" ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u0085", "\u2028", "\u3000", "\u200b", "\ufeff", "\x00", "\x7f", "\u00ad"),
    *("'s", "'T", "'LL", "'ſ", "'K", "don't", "I'M", "a", "Z", "é", "e\u0301", "ﬁ", "ß", "İ", "ǅ", "Å", "K"),
    *(
        "0",
        "12",
        "1234567",
        "3.14",
        "1,000",
        "١٢٣",
        "²",
        "½",
        "Ⅷ",
        "+",
        "==",
        "!=",
        "->",
        "/*",
        "*/",
        "#",
        "```",
        "http://x.y/z?a=b",
        "_",
        "__init__",
    ),
    *("你好", "世界", "の", "カ", "한국어", "ก็", "नमस्ते", "שלום", "مرحبا", "привет", "𝔘", "𐍈"),
    *("👍", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪", "e\u0301\u0323", "\U000e0041", "\ud7ff", "\ue000", "\ufffd", "\U0010ffff"),
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "[/INST]", "<0x0A>", "▁", "Ġ", "<|", "|>", "<unk>", "[PAD]"),
    *("The", " the", "quick", " brown", "FOX", "jumpsOver", "snake_case", "x1y2", "...", "…", "—", "“", "”", "\\n", "{", "}", '"'),
)


@cache
def edge_set() -> tuple[str, ...]:
    """About 4,500 short texts, the same on every machine: each piece alone and repeated, white-space runs, code points, random joins."""
    texts = [*_PIECES, *(piece * 3 for piece in _PIECES), *(f" {piece} " for piece in _PIECES)]
    texts += [
        char * count
        for char in (" ", "\n", "\t", "a", "=", "0", "é", "中", "👍")
        for count in (2, 3, 4, 5, 7, 8, 15, 16, 17, 63, 64, 65, 512)
    ]
    texts += ["".join(map(chr, range(start, start + 64))) for start in range(1, 0xD7C0, 64)]
    texts += ["".join(map(chr, range(start, start + 64))) for start in range(0x1F000, 0x20000, 64)]
    draw = random.Random(20_260_101)
    texts += ["".join(draw.choices(_PIECES, k=draw.randint(2, 12))) for _ in range(3000)]
    return tuple(texts)


def typed(tokens: Iterable[str]) -> tuple[str, ...]:
    """Texts with a tokenizer's added tokens typed in them: alone, in a sentence, against a word, twice."""
    return tuple(text for token in tokens for text in (token, f"a {token} b", f"a{token}b\n", token * 2))


# What was found about a tokenizer's engines, kept on disk: the next process reads it instead of comparing them again.

KEPT = Kept("engines", 256)
_RULES = 2
"""Counted up when the comparison itself changes."""
_DECIDES = ("added_tokens", "normalizer", "pre_tokenizer", "model")


class Finding(msgspec.Struct, frozen=True):
    """Whether the fast engine may be used for a tokenizer, why, and at which code points (first, one past the last) it differs."""

    fast: bool
    verdict: str
    suspects: Ranges = ()


def key_of(spec: Mapping[str, Any], engine: str) -> str:
    """What a finding depends on: the tokenizer and the engine beside what all such keys have."""
    return files.key_of(engine, _RULES, [spec.get(part) for part in _DECIDES])


def find(key: str) -> Finding | None:
    """The finding that was kept, or `None`."""
    data = KEPT.find(key)
    return None if data is None else msgspec.json.decode(data, type=Finding)


def keep(key: str, finding: Finding) -> None:
    """Keep a finding."""
    KEPT.keep(key, msgspec.json.encode(finding))
