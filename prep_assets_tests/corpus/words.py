"""Texts that are awkward to cut into words, and the obvious way to do it."""

from __future__ import annotations

import re

from hypothesis import strategies as st

PIECES = st.sampled_from(["a", "b c", "bc", "d", "the end", "…", "#", "naïve", "日本", "a b", "x1", "one two three four five six"])


TEXTS = st.lists(st.tuples(PIECES, st.sampled_from([" ", "\n", ", ", ""]), st.integers(1, 6)), max_size=40).map(
    lambda parts: "".join((piece + end) * times for piece, end, times in parts)
)


ODD = st.text(st.sampled_from("aZé_9'’.…?!-•¡日。ß٣ͅ \t\n\r\v\x1c\x1f\x85\xa0\u2028\x00\ud800😀") | st.characters(), max_size=60)


def words_of(text: str) -> list[str]:
    """Words and runs of punctuation."""
    return re.findall(r"\w+(?:['’]\w+)*|[^\w\s]+", text)
