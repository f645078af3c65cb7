"""Code points and texts on which engines may differ."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, groupby
from typing import Any

import numpy as np

from prep_assets.array_types import Bools
from prep_assets.text.ids import Engine, Flat

# Suspects: code points at which the fast engine and the reference may differ, so that texts with one of them go to the reference.
#
# Both encode each code point of `TRIED`: single, doubled and between letters, after spaces. Suspects are those with different ids, and all that are not
# tried: private planes and unassigned code points.
#
# Engines differ if one has newer Unicode tables. For a tokenizer that composes (NFC), a character is also a suspect if the reference's normalizer and
# Python's disagree about it, or if Python does not know it: Unicode guarantees that composed text stays composed in later versions only if all of its
# characters are assigned.

TRIED = ((0, 0xD800), (0xE000, 0x14680), (0x16100, 0x1FC00), (0x20000, 0x33480), (0xE0000, 0xE01F0))
"""Ranges of code points: all assigned ones up to Unicode 17, without surrogates."""
_ALL = 0x110000
_BLOCK = 64
_SIGNS_END = "\u3000"
"""Characters before this one are also tried next to an apostrophe and between digits."""

Ranges = tuple[tuple[int, int], ...]


def suspect_table(differing: Ranges) -> Bools:
    """Whether each code point is a suspect, bool[0x110000]. `differing`: ranges (first, end) that are known to differ."""
    table = np.ones(_ALL, bool)
    for first, end in TRIED:
        table[first:end] = False
    for first, end in differing:
        table[first:end] = True
    return table


def differing(fast: Engine, reference: Engine, normalizer: Any, *, numerals: bool) -> Ranges:
    """The code points of `TRIED` at which the two engines differ.

    Args:
        normalizer: the reference's normalizer if it composes; else `None`.
        numerals: whether numerals matter, so that Python has to know every character.
    """
    tried = [chr(point) for first, end in TRIED for point in range(first, end)]

    def probe_text(char: str) -> str:
        if numerals and not char.isascii() and unicodedata.category(char).startswith("N"):
            return f"x{char} x{char}b"  # numerals in other places are never routed to the fast engine
        texts = (char, char * 2, f"a{char}b", *((f"'{char}1{char}2",) if char < _SIGNS_END else ()))
        # an engine that does not compose gets composed text only
        return " ".join(texts if normalizer is None else [text for text in texts if unicodedata.is_normalized("NFC", text)])

    suspects = set(_differing_chars(tried, probe_text, fast, reference))
    if normalizer is not None:
        suspects.update(_composed_differently(tried, normalizer))
    if normalizer is not None or numerals:
        suspects.update(char for char in tried if unicodedata.category(char) == "Cn")
    runs = groupby(enumerate(sorted(map(ord, suspects))), key=lambda item: item[1] - item[0])
    points_of_runs = [[point for _, point in run] for _, run in runs]
    return tuple((run[0], run[-1] + 1) for run in points_of_runs)


def _differing_chars(chars: Sequence[str], probe_text: Callable[[str], str], fast: Engine, reference: Engine) -> Iterator[str]:
    """Yield the characters whose probe texts have different ids; compares blocks first, then the characters of unequal blocks."""

    def unequal(blocks: Sequence[Sequence[str]]) -> list[Sequence[str]]:
        texts = ["\n".join(map(probe_text, block)) for block in blocks]
        return [blocks[at] for at in unequal_texts(fast.encode(texts), reference.encode(texts))]

    blocks = unequal(_blocks(chars))
    unequal_chars = set(chain.from_iterable(unequal([[char] for block in blocks for char in block])))
    yield from unequal_chars
    # a block may differ although none of its characters does
    yield from chain.from_iterable(unequal([[char for char in block if char not in unequal_chars] for block in blocks]))


def _blocks(chars: Sequence[str]) -> list[Sequence[str]]:
    return [chars[at : at + _BLOCK] for at in range(0, len(chars), _BLOCK)]


def unequal_texts(a: Flat, b: Flat) -> list[int]:
    """Numbers of the texts whose ids differ between two results."""
    bounds = zip(a.offsets[:-1], a.offsets[1:], b.offsets[:-1], b.offsets[1:], strict=True)
    return [
        at for at, (a_start, a_end, b_start, b_end) in enumerate(bounds) if not np.array_equal(a.ids[a_start:a_end], b.ids[b_start:b_end])
    ]


def _composed_differently(chars: Sequence[str], normalizer: Any) -> Iterator[str]:
    """Yield characters on which the normalizer and Python differ: in composition or in canonical reordering with marks."""

    def disagree(block: Sequence[str]) -> bool:
        # composed and decomposed, after a mark of a high combining class and before one of the lowest
        text = "\n".join(f"{char}\n{unicodedata.normalize('NFD', char)}\na\u0315{char}\na{char}\u0334" for char in block)
        return bool(normalizer.normalize_str(text) != unicodedata.normalize("NFC", text))

    for char in (char for block in _blocks(chars) if disagree(block) for char in block):
        if disagree(char):
            yield char
            yield from unicodedata.normalize("NFD", char)


# Texts on which tokenizers are known to disagree. A fast engine must encode them like the reference before it is used.

_PIECES = (
    *(" ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u0085", "\u2028", "\u3000", "\u200b", "\ufeff", "\x00", "\x7f", "\u00ad"),
    *("'s", "'T", "'LL", "'ſ", "'K", "don't", "I'M", "a", "Z", "é", "e\u0301", "ﬁ", "ß", "İ", "ǅ", "Å", "K"),
    *("0", "12", "1234567", "3.14", "1,000", "١٢٣", "²", "½", "Ⅷ", "+", "==", "!=", "->", "/*", "*/", "#", "```"),
    *("http://x.y/z?a=b", "_", "__init__"),
    *("你好", "世界", "の", "カ", "한국어", "ก็", "नमस्ते", "שלום", "مرحبا", "привет", "𝔘", "𐍈"),
    *("👍", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪", "e\u0301\u0323", "\U000e0041", "\ud7ff", "\ue000", "\ufffd", "\U0010ffff"),
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "[/INST]", "<0x0A>", "▁", "Ġ", "<|", "|>", "<unk>", "[PAD]"),
    *("The", " the", "quick", " brown", "FOX", "jumpsOver", "snake_case", "x1y2", "...", "…", "—", "“", "”", "\\n", "{", "}", '"'),
)


@cache
def edge_set() -> tuple[str, ...]:
    """About 4,500 short texts, equal on every machine: single and repeated pieces, white-space runs, code points, random joins."""
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
    """Texts with typed tokens: bare, in a sentence, attached to a word, doubled."""
    return tuple(text for token in tokens for text in (token, f"a {token} b", f"a{token}b\n", token * 2))
