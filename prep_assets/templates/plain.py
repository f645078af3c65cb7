"""Which chats of a batch may be written by their layout: those of one text a turn, none of which holds anything that somebody looks for."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prep_assets.samples import TEXT, PlainChat, Sample


def plain_chat(sample: Sample) -> PlainChat | None:
    """The sample in columns; `None` where it is more than a text for each turn."""
    if sample.tools or sample.documents or sample.template_options or sample.label is not None:
        return None
    texts: list[str] = []
    for turn in sample.turns:
        if len(turn.regions) != 1 or turn.name is not None or turn.tool_call_id is not None:
            return None
        region = turn.regions[0]
        if region.kind != TEXT or region.loss_weight is not None or region.drop or not region.attend:
            return None
        texts.append(region.text)
    return PlainChat(tuple([turn.role for turn in sample.turns]), tuple(texts))


class Search:
    """Finds chats that hold one of several strings, or a character that no text may have. All texts of a batch are searched as one."""

    def __init__(self, needles: Iterable[str]) -> None:
        listed = sorted(set(needles), key=len)
        # who holds a string holds all that stand in it
        shortest = [needle for number, needle in enumerate(listed) if not any(short in needle for short in listed[:number])]
        self._needles = [needle.encode() for needle in shortest]
        self._between = next(chr(code) for code in range(32) if not any(chr(code) in needle for needle in shortest)).encode()

    def suspects(self, chats: Sequence[PlainChat | None]) -> set[int]:
        """Which of the chats hold something."""
        listed = [(number, chat) for number, chat in enumerate(chats) if chat is not None]
        try:
            data = self._between.join([text.encode() for _, chat in listed for text in chat.texts])
        except UnicodeEncodeError:  # half of a surrogate pair
            encodable = [chat if chat is not None and _is_encodable(chat) else None for chat in chats]
            return {number for number, _ in listed if encodable[number] is None} | self.suspects(encodable)
        hits = [needle for needle in self._needles if needle in data]
        if not hits and _MAYBE_NONCHARACTER not in data:
            return set()
        ends = list(accumulate(sum(len(text.encode()) + 1 for text in chat.texts) for _, chat in listed))
        pattern = re.compile(b"|".join([*map(re.escape, hits), _NONCHARACTER]))
        return {listed[bisect_right(ends, match.start())][0] for match in pattern.finditer(data)}


_MAYBE_NONCHARACTER = b"\xef\xb7"
_NONCHARACTER = _MAYBE_NONCHARACTER + b"[\x90-\xaf]"
"""U+FDD0 to U+FDEF, of which marks are made, in UTF-8."""


def _is_encodable(chat: PlainChat) -> bool:
    try:
        "".join(chat.texts).encode()
    except UnicodeEncodeError:
        return False
    return True
