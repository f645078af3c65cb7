"""Which samples are one text a turn with nothing beside."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.proofs.chat_blocks import answer_chat
from prep_assets.samples import (
    ASSISTANT,
    COMPLETION,
    PROMPT,
    TEXT,
    THINKING,
    USER,
    PlainChat,
    Region,
    Sample,
    Tokenized,
    Turn,
    changed,
    turn,
)
from prep_assets.text.chats import plain_chat

CHAT = Sample((turn(USER, "Why?"), turn(ASSISTANT, "So.")))
ROLES = (USER, ASSISTANT)


def test_plain_chats() -> None:
    assert plain_chat(CHAT) == PlainChat(ROLES, ("Why?", "So."))
    assert plain_chat(Sample(())) == PlainChat((), ())


@pytest.mark.parametrize(
    "altered",
    [
        {"tools": ({"name": "x"},)},
        {"documents": ({"text": "x"},)},
        {"template_options": {"x": 1}},
        {"label": False},
        {"tokenized": Tokenized((1,), (1.0,))},
    ],
)
def test_something_beside_the_turns(altered: dict[str, Any]) -> None:
    assert plain_chat(changed(CHAT, **altered)) is None
    assert answer_chat(changed(answered(), **altered)) is None


@pytest.mark.parametrize(
    "odd",
    [
        Turn(USER, ()),
        Turn(USER, (Region(TEXT, "a"), Region(TEXT, "b"))),
        Turn(USER, (Region(THINKING, "a"),)),
        turn(USER, "a", loss_weight=1.0),
        Turn(USER, (Region(TEXT, "a", drop=True),)),
        Turn(USER, (Region(TEXT, "a", attend=False),)),
        Turn(USER, (Region(TEXT, "a"),), name="Ada"),
        Turn(USER, (Region(TEXT, "a"),), tool_call_id="1"),
    ],
)
@pytest.mark.parametrize("at", [0, 1])
def test_a_turn_that_is_more_than_a_text(odd: Turn, at: int) -> None:
    turns = list(CHAT.turns)
    turns[at] = odd
    assert plain_chat(Sample(tuple(turns))) is None


def answered(first: float | None = 0.0, last: float | None = 1.0, role: str = ASSISTANT) -> Sample:
    return Sample((turn(USER, "Why?", loss_weight=first), turn(role, "So.", loss_weight=last)))


def test_a_trained_answer() -> None:
    assert answer_chat(answered()) == PlainChat(ROLES, ("Why?", "So."))
    assert answer_chat(answered(role=COMPLETION)) == PlainChat((USER, COMPLETION), ("Why?", "So."))
    assert answer_chat(Sample((turn(ASSISTANT, "So.", loss_weight=1.0),))) == PlainChat((ASSISTANT,), ("So.",))


@pytest.mark.parametrize(
    "sample",
    [
        CHAT,
        answered(first=1.0),
        answered(first=None),
        answered(last=0.0),
        answered(last=None),
        answered(last=0.5),
        answered(role=USER),
        answered(role=PROMPT),
        Sample((turn(USER, "a", loss_weight=0.0), Turn(ASSISTANT, (Region(TEXT, "b", 1.0), Region(TEXT, "c", 1.0))))),
        Sample((turn(USER, "a", loss_weight=0.0), Turn(ASSISTANT, (Region(TEXT, "b", 1.0), Region(TEXT, "c", 0.0))))),
        Sample((Turn(USER, (Region(TEXT, "a", 0.0),), name="Ada"), turn(ASSISTANT, "b", loss_weight=1.0))),
    ],
)
def test_other_weights_and_roles(sample: Sample) -> None:
    assert answer_chat(sample) is None
