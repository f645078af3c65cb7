"""Rows of instruction, input and output: Alpaca, Dolly, and ModelLink's handlers of that kind."""

from __future__ import annotations

import pytest

from prep_assets.errors import ConfigError
from prep_assets.schemas.registry import convert_with

ROW = {"instruction": " Sort. ", "input": "3 1 2\n", "output": " 1 2 3"}


def test_input_follows_the_instruction_after_a_blank_line_all_stripped(convert, said) -> None:
    assert said(convert("alpaca", ROW).turns) == [("user", "Sort.\n\n3 1 2"), ("assistant", "1 2 3")]


@pytest.mark.parametrize("blank", ["", "  \n", None])
def test_a_blank_input_leaves_the_instruction_alone(convert, said, blank) -> None:
    for name in ("alpaca", "AlpacaStyleInstructionHandler"):
        assert said(convert(name, {"instruction": "Sort.", "input": blank, "output": "x"}).turns)[0] == ("user", "Sort.")
    assert said(convert("alpaca", {"instruction": "Sort.", "output": "x"}).turns)[0] == ("user", "Sort.")


def test_modellink_joins_with_a_line_break_and_strips_nothing(convert, said) -> None:
    assert said(convert("AlpacaStyleInstructionHandler", ROW).turns) == [("user", " Sort. \n3 1 2\n"), ("assistant", " 1 2 3")]
    assert said(convert("GeneralInstructionHandler", ROW).turns) == [("user", " Sort. \n3 1 2\n"), ("assistant", " 1 2 3")]


def test_system_and_history_come_first(convert, refusal, said) -> None:
    row = {**ROW, "system": "Be brief.", "history": [["a", "b"], ["c", "d"]]}
    expected = [("system", "Be brief."), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]
    for name in ("alpaca", "AlpacaStyleInstructionHandler"):
        assert said(convert(name, row).turns)[:5] == expected
    unread = refusal("GeneralInstructionHandler", row)
    assert unread.reason == "unsupported_column" and "'system'" in unread.detail, "the answer was given to another prompt"
    assert refusal("alpaca", row, system_key=None).reason == "unsupported_column"
    assert len(convert("alpaca", {**row, "system": "", "history": []}).turns) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"output": " "}, "empty_answer"),
        ({"output": None}, "missing_field"),
        ({"instruction": "", "input": " "}, "empty_prompt"),
        ({"instruction": None}, "missing_field"),
        ({"input": 5}, "wrong_type"),
        ({"system": ["x"]}, "wrong_type"),
        ({"history": "x"}, "wrong_type"),
        ({"history": [["a"]]}, "wrong_type"),
        ({"history": [["a", ""]]}, "empty_answer"),
        ({"history": [["", "b"]]}, "empty_prompt"),
        ({"images": ["1.jpg"]}, "unsupported_media"),
        ({"image": "1.jpg"}, "unsupported_media"),
        ({"video": "1.mp4"}, "unsupported_media"),
        ({"audio": {"path": "1.wav"}}, "unsupported_media"),
    ],
)
def test_rows_that_are_refused(refusal, change, reason) -> None:
    assert refusal("alpaca", {**ROW, **change}).reason == reason


def test_a_column_with_the_name_of_a_medium_may_be_read_as_text(convert, refusal, said) -> None:
    row = {"audio": "Say it.", "output": "It."}
    assert said(convert("alpaca", row, prompt_key="audio").turns) == [("user", "Say it."), ("assistant", "It.")]
    assert refusal("instruction", {"prompt": "q", "response": "a", "image": "0.jpg"}).reason == "unsupported_media"
    chat = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    assert refusal("llava", {"conversations": chat, "video": "0.mp4"}).reason == "unsupported_media"


def test_map_keys_rename_the_columns(convert, said) -> None:
    row = {"q": "Sort.", "in": "3 1", "a": "1 3", "sys": "s", "past": [["x", "y"]]}
    mapped = {"prompt": "q", "query": "in", "response": "a", "system": "sys", "history": "past"}
    sample = convert("AlpacaStyleInstructionHandler", row, map_keys=mapped)
    assert said(sample.turns) == [("system", "s"), ("user", "x"), ("assistant", "y"), ("user", "Sort.\n3 1"), ("assistant", "1 3")]


def test_an_unknown_map_key_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"no key 'promt'; did you mean 'prompt'\?"):
        convert_with("AlpacaStyleInstructionHandler", {"map_keys": {"promt": "q"}})
    with pytest.raises(ConfigError, match="no key 'response'"):
        convert_with("AlpacaStylePairwiseHandler", {"map_keys": {"response": "q"}})


def test_dolly(convert, refusal, said) -> None:
    row = {"instruction": "When? ", "context": " In 2000.", "response": "2000\n", "category": "closed_qa"}
    assert said(convert("dolly", row).turns) == [("user", "When?\n\nIn 2000."), ("assistant", "2000")]
    assert said(convert("dolly", {**row, "context": ""}).turns)[0] == ("user", "When?")
    assert refusal("dolly", {**row, "response": ""}).reason == "empty_answer"
