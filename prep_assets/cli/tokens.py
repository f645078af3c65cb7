"""A row of tokens on a terminal: trained ones bold and green, masked ones dim, those that are not attended struck through, a bar where a document begins.

Where there is no colour, trained tokens stand in ⟦ ⟧, those that are not attended in ⟪ ⟫. White space that could be overlooked and control
characters are made visible; so text from a data set cannot steer the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from prep_assets.reports.visible import NEWLINE
from prep_assets.reports.visible import visible as visible

if TYPE_CHECKING:
    from prep_assets.tokenization.vocabulary import Vocabulary

TRAINED, MASKED, UNATTENDED, BORDER = "bold green", "dim", "dim strike", "cyan"
OPEN, CLOSE, HIDE, SHOW, BAR = "⟦", "⟧", "⟪", "⟫", "│"
_BYTES = re.compile(r"(?:⟨[89a-f][0-9a-f]⟩)+")
_NO_BRACKETS = str.maketrans("", "", "⟨⟩")


def joined(tokens: Sequence[str]) -> str:
    """The tokens' texts end to end; the bytes of a character that lies in several tokens, each shown as ``⟨f0⟩``, become that character."""
    return _BYTES.sub(_character, "".join(tokens))


def _character(shown: re.Match[str]) -> str:
    text = bytes.fromhex(shown[0].translate(_NO_BRACKETS)).decode("utf-8", "surrogateescape")
    return "".join(f"⟨{ord(char) - 0xDC00:02x}⟩" if 0xDC80 <= ord(char) <= 0xDCFF else char for char in text)


def runs(weights: Sequence[float], count: int, borders: Mapping[int, str]) -> Iterator[tuple[int, int, int]]:
    """First and last-plus-one token of each stretch that has no border inside and is throughout trained (1), masked (0) or not attended (-1).

    `weights` may be empty: then nothing has a mask and every stretch counts as masked.
    """
    start = 0
    for i in range(1, count + 1):
        if i == count or i in borders or _state(weights, i) != _state(weights, start):
            yield start, i, _state(weights, start)
            start = i


def _state(weights: Sequence[float], at: int) -> int:
    return (weights[at] > 0) - (weights[at] < 0) if weights else 0


def _styled(shown: str, state: int, *, masked: bool, colour: bool) -> tuple[str, str]:
    """What is shown of tokens, and its style."""
    style = {1: TRAINED, 0: MASKED if masked else "", -1: UNATTENDED}[state]
    opening, closing = ("", "") if colour else {1: (OPEN, CLOSE), 0: ("", ""), -1: (HIDE, SHOW)}[state]
    return f"{opening}{shown}{closing}", style


def flowing(tokens: Sequence[str], weights: Sequence[float], borders: Mapping[int, str], *, colour: bool) -> Text:
    """The tokens as running text.

    Args:
        weights: loss weight of each token, below 0 where it is not attended; empty without a mask, and then nothing is dim either.
        borders: what to write where a document begins, by its first token.
        colour: whether colour marks what is trained, else brackets do.
    """
    text = Text()
    for start, end, state in runs(weights, len(tokens), borders):
        if start in borders:
            text.append("" if not text or text.plain.endswith("\n") else "\n")
            text.append(f"{BAR} {visible(borders[start])}\n", BORDER)
        text.append(*_styled(visible(joined(tokens[start:end])), state, masked=bool(weights), colour=colour))
    return text


def listed(
    tokens: Sequence[str],
    weights: Sequence[float],
    positions: Sequence[int],
    ids: Sequence[int],
    borders: Mapping[int, str],
    *,
    colour: bool,
) -> Text:
    """One token a line: its place in the row, its position in its document, its id, its loss weight, its text."""
    text = Text(f"{'place':>7}{'position':>10}{'id':>9}{'weight':>8}  token\n", "bold")
    for i, token in enumerate(tokens):
        if i in borders:
            text.append(f"{BAR} {visible(borders[i])}\n", BORDER)
        state = _state(weights, i)
        weight = "hidden" if state < 0 else f"{weights[i]:g}" if weights else ""
        shown = visible(token).replace(NEWLINE, "⏎")
        text.append(f"{i:>7}{positions[i]:>10}{ids[i]:>9}{weight:>8}  ")
        text.append(*_styled(shown, state, masked=bool(weights), colour=colour))
        text.append("\n")
    return text


def texts_of(vocabulary: Vocabulary, ids: Sequence[int]) -> tuple[str, ...]:
    """The text of each id, as `token_texts`; an id that is outside the vocabulary, as in a damaged store, is shown as a number."""
    from prep_assets.assets.previews import token_texts

    known = [token for token in ids if 0 <= token < vocabulary.size]
    texts = iter(token_texts(vocabulary, known))
    return tuple(next(texts) if 0 <= token < vocabulary.size else f"⟨no token {token}⟩" for token in ids)
