"""Documents, prompts and completions: text that no chat template touches."""

from __future__ import annotations

import pytest

from prep_assets.samples import COMPLETION, DOCUMENT, PROMPT, document, turn


def test_a_document_is_one_turn_with_the_text_as_it_is(convert) -> None:
    assert convert("text", {"text": " a\n"}) == document(" a\n")
    assert convert("text", {"text": " a\n"}).turns[0].role == DOCUMENT
    assert convert("GeneralPretrainHandler", {"body": "a"}, text_key="body") == document("a")


def test_cerebras_hook_strips(convert) -> None:
    assert convert("text_read_hook", {"body": " a\n"}, text_key="body") == document("a")


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("", {}, "empty_text"),
        (" \n", {}, "empty_text"),
        ("ab", {"min_chars": 3}, "too_short"),
        ("abcd", {"max_chars": 3}, "too_long"),
        (None, {}, "missing_field"),
        (5, {}, "wrong_type"),
    ],
)
def test_documents_outside_the_bounds_are_refused(refusal, text, options, reason) -> None:
    assert refusal("text", {"text": text}, **options).reason == reason


def test_the_bounds_are_inclusive_and_count_code_points(convert) -> None:
    for text in ("né✓", "abc", "  a"):
        assert convert("text", {"text": text}, min_chars=3, max_chars=3) == document(text)


def test_a_refusal_says_what_the_record_has(refusal) -> None:
    assert refusal("text", {"body": "x", "id": 1}).detail == "needs 'text'; it has 'body', 'id'"
    assert refusal("text", {}).detail == "needs 'text'; it has no fields"


def test_instruction_keeps_prompt_and_response_apart(convert, refusal) -> None:
    row = {"instruction": "Add 2 and 2: ", "output": "4"}
    sample = convert("instruction", row, prompt_key="instruction", response_key="output")
    assert sample.turns == (turn(PROMPT, "Add 2 and 2: "), turn(COMPLETION, "4"))
    assert refusal("instruction", {"prompt": "q", "response": " "}).reason == "empty_answer"
    assert refusal("instruction", {"prompt": " ", "response": "a"}).reason == "empty_prompt"


def test_prompt_completion_of_strings(convert, said) -> None:
    row = {"prompt": " q ", "completion": " a "}
    assert said(convert("prompt_completion", row).turns) == [("prompt", " q "), ("completion", " a ")]
    assert said(convert("prompt_completion", row, template=True).turns) == [("user", " q "), ("assistant", " a ")]
    assert said(convert("prompt_completion_text_read_hook", row).turns) == [("prompt", " q "), ("completion", " a ")]
    assert said(convert("prompt_completion_chat_read_hook", row).turns) == [("user", "q"), ("assistant", "a")]


def test_prompt_completion_keeps_the_tools(convert) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    chat = {"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}
    for row in ({"prompt": "q", "completion": "a"}, chat):
        assert convert("prompt_completion", {**row, "tools": tools}, template=True).tools == tuple(tools)


def test_prompt_completion_of_messages_trains_the_completion_only(convert) -> None:
    row = {
        "prompt": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "assistant", "content": "c", "weight": 0.5},
            {"role": "user", "content": "d"},
        ],
        "completion": [{"role": "assistant", "content": "e"}],
    }
    weights = [turn.regions[0].loss_weight for turn in convert("prompt_completion", row).turns]
    assert weights == [None, 0.0, 0.5, None, None]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "q", "completion": [{"role": "assistant", "content": "a"}]}, "wrong_type"),
        ({"prompt": [{"role": "user", "content": "q"}], "completion": "a"}, "wrong_type"),
        ({"prompt": [{"role": "assistant", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}, "role_order"),
        ({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "user", "content": "a"}]}, "no_assistant_turn"),
        ({"prompt": [], "completion": []}, "empty_prompt"),
        ({"prompt": "q", "completion": "a", "images": ["1.jpg"]}, "unsupported_media"),
    ],
)
def test_prompt_completion_refuses(refusal, row, reason) -> None:
    assert refusal("prompt_completion", row).reason == reason


def test_a_separator_stands_after_the_prompt_and_weighs_nothing(convert, refusal) -> None:
    """Cerebras: prompt + sep token + completion; the sep token belongs to no region, so its weight is 0."""
    prompt, completion = convert("prompt_completion", {"prompt": "2+2", "completion": "4"}, separator="<|sep|>").turns
    assert [(region.text, region.loss_weight) for region in prompt.regions] == [("2+2", None), ("<|sep|>", 0.0)]
    assert (prompt.text + completion.text, completion.role) == ("2+2<|sep|>4", "completion")
    messages = {"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}
    assert refusal("prompt_completion", messages, separator="|").reason == "wrong_type"


def test_token_ids_are_no_text(convert, refusal, said) -> None:
    assert refusal("nlg_read_hook", {"context": [1, 2], "completion": "c"}).reason == "wrong_type"
    assert refusal("nlg_read_hook", {"context": {}, "completion": "c"}).reason == "wrong_type"
    assert said(convert("nlg_read_hook", {"context": "a", "completion": "b"}).turns) == [("prompt", "a"), ("completion", "b")]


@pytest.mark.parametrize("given", ["", "2 and 2"])
def test_alpaca_in_modellinks_pretraining_template(convert, given) -> None:
    """The string of its handler, but for the input section, which is left out where it would say ``###None``."""
    text = convert("AlpacaPretrainHandler", {"instruction": "Add.", "input": given, "output": "4 {x}"}).turns[0].text
    section = f"### Input:\n{given}\n\n" if given else ""
    assert text == (
        "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers "
        "to the user's questions.USER: Below is an instruction that describes a task. Write a response that appropriately completes the "
        f"request.\n\n### Instruction:\nAdd.\n\n{section}### Response: ASSISTANT: 4 {{x}}"
    )


def test_modellinks_other_pretraining_handlers(convert, refusal) -> None:
    row = {"title": "Sort", "question_body": "How?", "answer_body": "sorted()"}
    text = convert("StackOverflowPythonPretrainHandler", row).turns[0].text
    assert text == "In python, Sort\n### Question:\nHow?\n### Response:\nsorted()\n"
    rows = {"conversations": [{"value": "a"}, {"content": "b"}, {"from": "gpt", "value": "c"}]}
    assert convert("SharegptPretrainHandler", rows).turns[0].text == "abc"
    assert refusal("SharegptPretrainHandler", {"conversations": [{"from": "gpt"}]}).reason == "missing_field"
    assert refusal("AlpacaPretrainHandler", {"instruction": "Add.", "input": "", "output": " "}).reason == "empty_text"
