"""What the rows of a source say must stand in the store: their texts, on their side, in their order, as often. It shares no code with schemas and renders.

`source_rows` reads a row by the columns that its definition lists: which is whose text, and what becomes of it. Each of its texts is then looked for in the
decoded record.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple

from prep_assets.proofs.row_rules import number

TEXT, REASONING, CALL, TOOL, ANYWHERE, EXACT = "text", "reasoning", "call", "tool", "anywhere", "exact"
ANSWERS = ("chosen", "rejected", "responses", "completion")
"""Sides that answer a prompt."""
ASIDE = ("gold", "verifier", "arguments", "label", "instruction", "query", "positives", "negatives")
"""Fields of lines beside a prompt and answers."""


class Said(NamedTuple):
    """A text of a row.

    Attributes:
        path: where it stands in the row.
        side: whose record or field of a line holds it; ``""`` for the one conversation, and for what may stand anywhere.
        turn: number of its turn. Texts of one kind stand in their order within a turn, and all of them behind the turns before.
        kind: `TEXT`, `REASONING`, `CALL` (a name, a key or a value of a tool call), `TOOL`, `ANYWHERE` or `EXACT` (all that its side holds).
        text: the text.
        weight: the loss weight that the row gives it; `None` where its role decides.
        role: who says it.
    """

    path: str
    side: str
    turn: int
    kind: str
    text: str
    weight: float | None = None
    role: str = ""

    @property
    def is_answer(self) -> bool:
        """Whether a model answers with it."""
        return self.role in ("assistant", "completion", "words")


EARLIER = "earlier"
"""The role of an answer in a prompt, which is not trained."""


class Policy(NamedTuple):
    """What decides which texts are trained, where the row does not say it.

    Attributes:
        trains: which roles are trained, and which are not.
        calls: whether tool calls are trained.
        last_only: whether the last trained turn alone is trained.
    """

    trains: Mapping[str, bool] = {}
    calls: bool = True
    last_only: bool = False

    def weight(self, said: Said, *, by_role: bool) -> float | None:
        """Return the loss weight that a text must have; `None` where that is not known. `by_role`: roles decide where it stands."""
        if said.kind == CALL and not self.calls:
            return 0.0
        trained = self.trains.get(said.role) if by_role else None
        weight = said.weight if said.weight is not None or trained is None else float(trained)
        return None if weight and self.last_only else weight


NO_POLICY = Policy()


# What is looked for, in what a store holds.


class Held(NamedTuple):
    """What a side of a record holds: its text, by each loss weight (float32) the text of its tokens, or `None` where no weights are known, and where the answer
    begins behind the prompt."""

    text: bytes
    weighed: Mapping[float, bytes] | None = None
    begins: int = 0


class Missing(NamedTuple):
    """A text of a row that its record does not hold, and why."""

    said: Said
    why: str

    def __str__(self) -> str:
        return f"{self.said.path!r} says {self.said.text.strip()[:60]!r}, which {self.why}"


def spellings(said: Said, spell: Callable[[str], bytes]) -> tuple[bytes, ...]:
    """Return how a text may be written: without white space around it; what a template writes as JSON also with escapes."""
    plain = said.text.strip()
    if said.kind not in (CALL, TOOL, ANYWHERE) and said.role != "tool":
        return (spell(plain),)
    forms = [plain, json.dumps(plain, ensure_ascii=False)[1:-1], json.dumps(plain)[1:-1]]
    forms += [plain.capitalize()] if plain in ("true", "false") else []
    return tuple(dict.fromkeys(map(spell, forms)))


def _end(data: bytes, forms: Sequence[bytes], start: int) -> int:
    """Where the first of several spellings ends at or behind `start`; -1 where there is none."""
    if len(forms) == 1:
        at = data.find(forms[0], start)
        return -1 if at < 0 else at + len(forms[0])
    return min((at + len(form) for form in forms if (at := data.find(form, start)) >= 0), default=-1)


def missing(
    said: Iterable[Said],
    held: Mapping[str, Held],
    lost: list[Said],
    spell: Callable[[str], bytes] = str.encode,
    policy: Policy = NO_POLICY,
) -> Missing | None:
    """Return the first text that a record does not hold where its row has it; `None` where all stand.

    Args:
        held: of each side.
        lost: gets the reasoning that is not there.
        spell: how a text stands in decoded tokens.
        policy: what is trained where the row does not say it.
    """
    listed = list(said)
    for side, texts in _by_side(listed).items():
        if side not in held:
            return Missing(texts[0], f"is of {side!r}, which the record does not have")
        if (fault := _on_side(texts, held[side], lost, spell, policy)) is not None:
            return fault
    whole = held[""].text if "" in held else b"\n".join(each.text for each in held.values())
    names = 0
    for each in listed:
        if each.kind in (ANYWHERE, TOOL):
            forms = spellings(each, spell)
            end = _end(whole, forms, names if each.kind == TOOL else 0)
            if end < 0:
                return Missing(each, "stands nowhere in the record")
            if each.kind == TOOL and max(map(whole.count, forms)) <= sum(said.kind == CALL and said.text == each.text for said in listed):
                return Missing(each, "stands in calls, and is not on offer")
            names = end if each.kind == TOOL else names
    return None


def _by_side(said: Iterable[Said]) -> dict[str, list[Said]]:
    sides: dict[str, list[Said]] = {}
    for each in said:
        if each.kind not in (ANYWHERE, TOOL):
            sides.setdefault(each.side, []).append(each)
    return sides


def _on_side(texts: Sequence[Said], held: Held, lost: list[Said], spell: Callable[[str], bytes], policy: Policy) -> Missing | None:
    """The first text of a side that does not stand in its order, or in tokens of another weight.

    Reasoning that a template drops may be found in a later turn, which says the same, and hide what stands between: it is left out then.
    """
    left, dropped, first = [*texts], list[Said](), None
    while True:
        missed = list[Said]()
        fault = _in_order(left, held, missed, spell, policy)
        if fault is None:
            lost += [*dropped, *missed]
            return None
        first = first or fault
        before = [each for each in left[: left.index(fault.said)] if each.kind == REASONING and each not in missed]
        repeated = [each for each in before if any(later.turn > each.turn and each.text.strip() in later.text for later in texts)]
        if not repeated:
            return first
        left.remove(repeated[-1])
        dropped.append(repeated[-1])


def _in_order(texts: Sequence[Said], held: Held, lost: list[Said], spell: Callable[[str], bytes], policy: Policy) -> Missing | None:
    """The same, where every reasoning that is found stands in its turn."""
    whole, last = -1.0, texts[-1].turn
    base = {whole: 0}
    for turn, run in groupby(texts, key=lambda each: each.turn):
        base[whole] = max(base[whole], held.begins) if turn == last else base[whole]
        ends: dict[tuple[float, str], int] = {}
        for each in run:
            if each.kind == EXACT:
                if not _same(each.text, held.text):
                    return Missing(each, f"is {held.text.decode()[:60]!r} in the store")
                continue
            forms = spellings(each, spell)
            end = _end(held.text, forms, ends.get((whole, each.kind), base[whole]))
            if end < 0 and each.kind == REASONING:
                lost.append(each)
                continue
            if end < 0:
                where = "stands before the text in front of it" if any(form in held.text for form in forms) else "stands nowhere in it"
                return Missing(each, f"{where}, on the side {each.side or 'of the whole record'}")
            ends[whole, each.kind] = end
            weight = policy.weight(each, by_role=turn == last or not each.side)  # before an answer stands its prompt
            if weight is not None and held.weighed is not None and each.kind != REASONING:
                weight = single(weight)
                end = _end(held.weighed.get(weight, b""), _inner(each, forms), ends.get((weight, each.kind), base.get(weight, 0)))
                if end < 0:
                    must = "untrained" if not weight else "trained" if weight == 1 else f"trained with weight {weight:g}"
                    return Missing(each, f"must be {must}, and is not")
                ends[weight, each.kind] = end
        for (part, _), end in ends.items():
            base[part] = max(end, base.get(part, 0))
    return None


def single(weight: float) -> float:
    """A weight as a store has it: rounded to float32."""
    [stored] = struct.unpack("f", struct.pack("f", weight))
    return float(stored)


_CUT = 8


def _inner(said: Said, forms: Sequence[bytes]) -> Sequence[bytes]:
    """The spellings without what a token may share with the next text where no template stands between them."""
    if said.role not in ("prompt", "completion", "document"):
        return forms
    return [form[_CUT:-_CUT] for form in forms]


def _same(said: str, held: bytes) -> bool:
    """Whether a field of a line is a value: equal as JSON, as text, or as a number."""
    row, stored = json.loads(said), json.loads(held) if held else None
    if row == stored and isinstance(row, bool) == isinstance(stored, bool):
        return True
    numbers = [_number(each) for each in (row, stored)]
    return None not in numbers and numbers[0] == numbers[1]


def _number(value: Any) -> Fraction | None:
    try:
        return number(value.strip()) if isinstance(value, str) else Fraction(str(value))
    except ValueError:
        return None
