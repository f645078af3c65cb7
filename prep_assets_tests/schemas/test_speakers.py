"""Names of speakers in rows: left out and counted, or in front of what is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest

from prep_assets.config.family import Domain
from prep_assets.errors import Refused
from prep_assets.pipeline.examples import converter
from prep_assets.samples import (
    ASSISTANT,
    IMAGE,
    SYSTEM,
    TEXT,
    THINKING,
    TOOL_CALL,
    USER,
    Example,
    Group,
    Pair,
    PlainChat,
    Prompt,
    Region,
    Sample,
    Turn,
    turn,
)
from prep_assets.schemas.reader import Reader, apply

Mode = Literal["keep", "leave_out", "write"]


def reader(mode: Mode, schema: str = "messages", gives: type = Sample, **options: Any) -> Reader:
    return converter(Domain(files=("a.jsonl",), schema=schema, speaker_names=mode, options=options), gives)


def message(role: str, name: str | None, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **({} if name is None else {"name": name}), **more}


def turns(mode: Mode, *messages: Mapping[str, Any], **row: Any) -> tuple[Turn, ...]:
    sample = apply(reader(mode), {"messages": list(messages), **row})
    assert isinstance(sample, Sample)
    return sample.turns


ASKED = message("user", "ann", "Hi")
CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
CALL = Region(TOOL_CALL, '{"name":"f","arguments":{},"id":"c1"}')


@pytest.mark.parametrize(
    ("said", "written"),
    [
        (message("assistant", "bot", "Well."), (Region(TEXT, "bot: Well."),)),
        (message("assistant", "bot", " Well.", weight=0), (Region(TEXT, "bot:  Well.", 0.0),)),
        (message("assistant", "bot", "Well.", reasoning_content="Hm."), (Region(THINKING, "Hm."), Region(TEXT, "bot: Well."))),
        (message("assistant", "bot", None, tool_calls=CALLS), (Region(TEXT, "bot: "), CALL)),
        (message("assistant", "bot", "Well.", tool_calls=CALLS), (Region(TEXT, "bot: Well."), CALL)),
        (message("assistant", "bot", "I think <think> is a tag."), (Region(TEXT, "bot: I think <think> is a tag."),)),
        (message("assistant", " ", "Well."), (Region(TEXT, "Well."),)),
        (message("assistant", None, "Well."), (Region(TEXT, "Well."),)),
    ],
)
def test_a_name_stands_in_front_of_what_is_said(said: dict[str, Any], written: tuple[Region, ...]) -> None:
    assert turns("write", ASKED, said) == (turn(USER, "ann: Hi"), Turn(ASSISTANT, written))
    bare = turns("keep", message("user", None, "Hi"), {key: value for key, value in said.items() if key != "name"})
    assert turns("leave_out", ASKED, said) == bare
    kept = turns("keep", ASKED, said)
    assert [each.name for each in kept] == ["ann", said.get("name")] and kept[1].regions == bare[1].regions


def test_a_name_stands_in_front_of_an_image() -> None:
    picture = message("user", "ann", [{"type": "image", "image": "a.png"}, {"type": "text", "text": "What?"}])
    first, _ = turns("write", picture, message("assistant", None, "A cat."))
    assert first == Turn(USER, (Region(TEXT, "ann: "), Region(IMAGE, "a.png"), Region(TEXT, "What?")))


@pytest.mark.parametrize("text", ["<think>Hm.</think>Well.", " [THINK]Hm.[/THINK]Well."])
def test_a_name_before_reasoning_in_the_text_is_refused(text: str) -> None:
    """There it would be no reasoning any more."""
    with pytest.raises(Refused, match="set speaker_names: leave_out") as raised:
        turns("write", ASKED, message("assistant", "bot", text))
    assert (raised.value.stage, raised.value.reason) == ("schema", "name_before_reasoning")
    assert turns("write", ASKED, message("assistant", None, text))[1] == turn(ASSISTANT, text)
    assert turns("leave_out", ASKED, message("assistant", "bot", text))[1] == turn(ASSISTANT, text)


def test_the_name_of_a_tool_stays() -> None:
    result = message("tool", "f", "2", tool_call_id="c1")
    for mode in ("leave_out", "write"):
        found = turns(
            mode,
            message("system", "boss", "Be kind."),
            ASKED,
            message("assistant", None, None, tool_calls=CALLS),
            result,
            message("assistant", None, "2."),
        )
        assert [each.name for each in found] == [None, None, None, "f", None]
        assert found[0] == turn(SYSTEM, "boss: Be kind." if mode == "write" else "Be kind.")


def test_rows_of_which_names_are_left_out_are_counted() -> None:
    read, answer = reader("leave_out"), message("assistant", None, "Well.")
    rows = [[ASKED, answer, ASKED, answer], [message("user", None, "Hi"), answer], [message("user", "", "Hi"), answer], [ASKED, answer]]
    for row in rows:
        apply(read, {"messages": row})
    tools = [ASKED, message("assistant", None, None, tool_calls=CALLS), message("tool", "f", "2", tool_call_id="c1"), answer]
    apply(read, {"messages": [message("user", None, "Hi"), *tools[1:]]})
    assert read.account.counts == {"messages.name": 2}
    with pytest.raises(Refused):
        apply(read, {"messages": [ASKED]})
    assert read.account.counts == {"messages.name": 2}, "of a row that is refused nothing is counted"
    for mode in ("keep", "write"):
        other = reader(mode)
        apply(other, {"messages": rows[0]})
        assert not other.account.counts and not other.account.unknown


def test_other_kinds_of_rows() -> None:
    answer = message("assistant", "bot", "Well.")
    asked, written = (turn(USER, "ann: Hi"),), turn(ASSISTANT, "bot: Well.")

    def read(schema: str, gives: type, row: dict[str, Any]) -> Example:
        return apply(reader("write", schema, gives), row)

    pair = read("preference", Pair, {"prompt": [ASKED], "chosen": [answer], "rejected": [message("assistant", None, "No.")]})
    assert pair == Pair(asked, (written,), (turn(ASSISTANT, "No."),))
    assert read("rl_prompt", Prompt, {"prompt": [ASKED], "gold": "1"}) == Prompt(asked, "1")
    group = read("group", Group, {"prompt": [ASKED], "responses": [[answer], "No."], "rewards": [1, 0]})
    assert isinstance(group, Group) and (group.prompt, group.responses) == (asked, ((written,), (turn(ASSISTANT, "No."),)))
    shares = {"conversations": [{"from": "human", "value": "Hi", "name": "ann"}, {"from": "gpt", "value": "Well.", "name": "bot"}]}
    assert read("sharegpt", Sample, shares) == Sample((*asked, written))
    left = reader("leave_out", "preference", Pair)
    apply(left, {"prompt": [ASKED], "chosen": [answer], "rejected": [message("assistant", None, "No.")]})
    assert left.account.counts == {"prompt.name": 1, "chosen.name": 1}


def test_rows_without_names_are_still_read_in_columns() -> None:
    plain = {"messages": [message("user", None, "Hi"), message("assistant", None, "Well.")]}
    named = {"messages": [ASKED, message("assistant", None, "Well.")]}
    found = reader("write").rows([plain, plain, named, plain])
    assert [type(each) for each in found] == [Sample, PlainChat, Sample, PlainChat]
    assert found[2] == Sample((turn(USER, "ann: Hi"), turn(ASSISTANT, "Well.")))
