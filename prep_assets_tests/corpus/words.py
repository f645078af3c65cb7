"""Texts that are awkward to cut into words, and the obvious way to do it."""

from __future__ import annotations

import re
import unicodedata

from hypothesis import strategies as st

PIECES = st.sampled_from(["a", "b c", "bc", "d", "the end", "…", "#", "naïve", "日本", "a b", "x1", "one two three four five six"])


TEXTS = st.lists(st.tuples(PIECES, st.sampled_from([" ", "\n", ", ", ""]), st.integers(1, 6)), max_size=40).map(
    lambda parts: "".join((piece + end) * times for piece, end, times in parts)
)


ODD = st.text(st.sampled_from("aZé_9'’.…?!-•¡日。ß٣ͅ \t\n\r\v\x1c\x1f\x85\xa0\u2028\x00\ud800😀") | st.characters(), max_size=60)


def words_of(text: str) -> list[str]:
    """Words and runs of punctuation."""
    return re.findall(r"\w+(?:['’]\w+)*|[^\w\s]+", text)


_ABBREVIATION = re.compile(
    r"(?:^|\W)(?:(?:[^\W\d_]\.)*(?<![\w'’])[^\W\d_]|Mrs?|Ms|Drs?|Prof|St|Jr|Sr|Inc|Ltd|Co|Corp|Bros|Gen|Gov|Rep|Sen|Rev|Ph\.D|vs"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.$"
)
_SENTENCE_ENDS = frozenset(".?!。？！")


def sentences(text: str) -> int:
    """How many sentences a text has: a word with a letter or digit begins another one after an end mark and white space. Dots of abbreviations and of
    ellipses end none."""
    count, ended = 0, True
    for word in text.split():
        tail = len(word)
        while tail and unicodedata.category(word[tail - 1])[0] == "P":
            tail -= 1
        if tail and ended:
            count, ended = count + 1, False
        marks = word[tail:].replace("...", "").replace("..", "")
        ended = ended or (not _SENTENCE_ENDS.isdisjoint(marks) and _ABBREVIATION.search(word[: tail + 1]) is None)
    return max(count, min(1, len(text)))
