"""What a rule says of a chat whose schema takes it, whatever names its fields have, and what no rule can tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from prep_assets.proofs.formats import format_of
from prep_assets.proofs.rejected_rows import beyond, chat_fault, kept_fault, ruling
from prep_assets.schemas.registry import schemas
from prep_assets_tests.corpus.rows import ANSWER, CALL, USER, said

ASKS, RESULT = {**ANSWER, "tool_calls": [CALL]}, said("tool", "4")
TOOL, OTHER = ({"type": "function", "function": {"name": name}} for name in ("f", "other"))
WRITTEN, SYSTEM = said("assistant", '{"name": "f", "arguments": {}}'), said("system", "s")


def chat(*messages: Any, **columns: Any) -> dict[str, Any]:
    return {"messages": [*messages], **columns}


@pytest.mark.parametrize(
    ("row", "options", "reason"),
    [
        (chat(USER, RESULT, ANSWER), {}, "role_order"),
        (chat(USER, ASKS, USER, ANSWER), {}, "unanswered_tool_call"),
        (chat(USER, {**ASKS, "tool_calls": [{**CALL, "id": "1"}]}, {**RESULT, "tool_call_id": "2"}, ANSWER), {}, "unknown_tool_call"),
        *(
            (chat(USER, asks, RESULT, ANSWER, **{column: [OTHER]}), {"tools_key": "offered"} if column == "offered" else {}, "unknown_tool")
            for asks in (ASKS, WRITTEN)
            for column in ("tools", "functions", "available_tools", "offered")
        ),
        (chat(USER, ANSWER, tools=[OTHER], functions=[TOOL]), {}, "conflicting_tools"),
        (chat({**SYSTEM, "tools": [OTHER]}, {**USER, "tools": [TOOL]}, ANSWER), {}, "conflicting_tools"),
        (chat(SYSTEM, USER, ANSWER, system="t"), {}, "two_systems"),
        (chat(SYSTEM, USER, ANSWER, rules="t"), {"system_key": "rules"}, "two_systems"),
        *((chat(USER, {**ANSWER, "train": False, key: True}), {}, "conflicting_weights") for key in ("weight", "loss_scale", "loss")),
        *((chat(USER, {**ANSWER, "thinking": "x", key: "y"}), {}, "conflicting_reasoning") for key in ("reasoning", "tool_plan")),
        *((chat(USER, ANSWER, **{f"{kind}s": ["f"]}), {}, f"{kind}_count") for kind in ("image", "audio", "video")),
        (chat(USER, ANSWER, pictures=["f"]), {"images_key": "pictures"}, "image_count"),
        (chat(said("user", [{"type": "image"}]), ANSWER), {}, "image_count"),
    ],
)
def test_a_chat_that_its_schema_must_reject(row: dict[str, Any], options: dict[str, Any], reason: str) -> None:
    definition = format_of("messages", options)
    assert definition is not None
    assert kept_fault(definition, row) == f"a second reading finds {reason!r}"
    assert ruling(definition, row, reason) == ""
    right = ruling(definition, chat(USER, ANSWER), reason)
    assert right == f"the definition of 'messages' accepts it, and a second reading finds no {reason!r}"


def test_what_is_said_of_a_reason() -> None:
    definition, right = format_of("messages", {}), chat(USER, ANSWER)
    assert definition is not None and None not in beyond("messages").values()
    for row, reason, says in (
        (right, "schema_error", "its schema fails on it, which no row may make it do"),
        ({"messages": 5}, "schema_error", "its schema fails on it, which no row may make it do"),
        ({"messages": 5}, "anything", ""),
        (right, "anything", "the definition of 'messages' accepts it, and no rule beyond it rejects a row for 'anything'"),
    ):
        assert ruling(definition, row, reason) == says
    assert kept_fault(definition, {"messages": 5}) == "the definition of 'messages' does not accept it"


def test_messages_that_a_rule_makes() -> None:
    assert chat_fault([USER, ANSWER], None) == chat_fault([USER, ASKS, RESULT, ANSWER], [TOOL]) == ""
    assert chat_fault([USER, ASKS, RESULT, ANSWER], [OTHER]) == "a second reading finds 'unknown_tool'"
    assert chat_fault([USER, ANSWER], None, images=["a.png"]) == "a second reading finds 'image_count'"
    assert chat_fault([USER], None) == chat_fault([USER, ANSWER], 5) == "the definition of 'messages' does not accept it"
    with pytest.raises(ValueError, match="JSON"):
        chat_fault([{**USER, "idx": float("nan")}, ANSWER], None)


def test_calls_that_are_no_chat() -> None:
    """A row of another format gives no reason of its own, and what its calls say together is judged as a chat."""
    definition, row = format_of("agent_steps", {}), schemas()["agent_steps"].example
    assert definition is not None and kept_fault(definition, row) == ""
    [call] = row["trajectory"]
    asks = {**row, "trajectory": [{**call, "completion": [ASKS]}]}
    assert kept_fault(definition, {**asks, "tools": [TOOL]}) == ""
    assert kept_fault(definition, {**asks, "tools": [OTHER]}) == "by a second reading it is not whole"


def test_of_a_row_that_cannot_be_judged_nothing_is_said() -> None:
    unsure = cast(Any, SimpleNamespace(of=lambda row: None))
    assert kept_fault(unsure, chat(USER, ANSWER)) == "" and ruling(unsure, chat(USER, ANSWER), "schema_error") is None
