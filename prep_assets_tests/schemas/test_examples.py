"""What rows of each format become: one table of rows, options and examples, written in short (see `in_short`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.cells import cells
from prep_assets_tests.corpus.rows import ANSWER, CALL, CASES, GPT, ONE_CALL, USER, chat, said, shares
from prep_assets_tests.schemas.conftest import in_short

BARE = {"name": "f", "parameters": {}}


@cells(
    ("name", "row", "options", "example"),
    [
        pytest.param(name, case[0], dict(*case[1:-1]), case[-1], id=f"{name}-{number}")
        for name, cases in CASES.items()
        for number, case in enumerate(cases)
    ],
)
def test_rows_become_examples(name: str, row: Mapping[str, Any], options: dict[str, Any], example: str) -> None:
    assert in_short(apply(convert_with(name, options), row)) == example


@pytest.mark.parametrize("tools", [[BARE], BARE, json.dumps([BARE]), [{"type": "function", "function": BARE}]])
def test_tools_come_out_as_templates_look_for_them(convert, tools) -> None:
    assert convert("messages", chat(USER, ANSWER, tools=tools)).tools == ({"type": "function", "function": BARE},)


@pytest.mark.parametrize("tools", [None, "", " ", [], "[]"])
def test_no_tools(convert, tools) -> None:
    assert convert("messages", chat(USER, ANSWER, tools=tools)).tools == ()


def test_a_result_names_the_call_that_it_answers(convert) -> None:
    sample = convert("messages", chat(USER, said("assistant", None, tool_calls=[CALL]), said("tool", "4", tool_call_id="c1"), ANSWER))
    assert [turn.tool_call_id for turn in sample.turns] == [None, None, "c1", None]


@pytest.mark.parametrize("image", ["0.jpg", {"path": "0.jpg", "bytes": None}, ["0.jpg"]])
@pytest.mark.parametrize("schema", ["messages", "sharegpt", "sharegpt_pairwise"])
def test_a_column_image_stands_in_for_images(convert, refusal, schema: str, image: object) -> None:
    def row(text: str, **columns: Any) -> dict[str, Any]:
        if schema == "messages":
            return chat(said("user", text), ANSWER, **columns)
        human = {"from": "human", "value": text}
        return shares(human, GPT, **columns) if schema == "sharegpt" else shares(human, chosen=GPT, rejected=ONE_CALL, **columns)

    assert in_short(convert(schema, row("<image>who", image=image))).startswith("user: <image>0.jpg</image>who")
    assert in_short(convert(schema, row("who", image=""))).startswith("user: who")
    for text, columns in (("who", {"image": image}), ("<image><image>", {"image": image}), ("<image>", {"image": ""})):
        assert refusal(schema, row(text, **columns)).reason == "image_count"
    assert refusal(schema, row("<image>", images=["1.jpg"], image=image)).reason == "unsupported_media"
    assert refusal(schema, row("<image>", pictures=["1.jpg"], image=image), images_key="pictures").reason == "unsupported_media"
