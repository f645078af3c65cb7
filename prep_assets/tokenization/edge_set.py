"""Texts on which tokenizers are known to disagree: the gate that a fast engine must pass before it is used."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache

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
