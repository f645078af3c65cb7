"""Which named templates can be rendered turn by turn, and which answers start where the generation prompt ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from prep_assets.errors import Refused
from prep_assets.text.load_template import named_templates
from prep_assets_tests.text.goldens import REASONED, SQUARE, SYSTEM, TOOL_ROUND, TWO_ROUNDS, Golden, Message, Model
from prep_assets_tests.text.test_named_deepseek_r1 import DEEPSEEK_R1
from prep_assets_tests.text.test_named_glm4 import GLM4
from prep_assets_tests.text.test_named_llama3 import LLAMA3
from prep_assets_tests.text.test_named_mistral import MISTRAL
from prep_assets_tests.text.test_named_qwen import QWEN, QWEN3
from prep_assets_tests.text.test_named_without_tools import ALPACA, DEFAULT, GEMMA, LLAMA2, PHI, VICUNA

CONVERSATIONS: dict[str, tuple[tuple[Message, ...], tuple[dict[str, Any], ...]]] = {
    "rounds": (TWO_ROUNDS, ()),
    "system": ((SYSTEM, *TWO_ROUNDS), ()),
    "reasoning": (REASONED, ()),
    "tools": (TOOL_ROUND, (SQUARE,)),
}
YES, NO, REFUSED = True, False, None

# Whether the render of the first k messages is a prefix of the render of all, for every k from the first user turn on.
PREFIXES: list[tuple[Model, Mapping[str, Any], list[bool | None]]] = [
    # template, options                          rounds, system, reasoning, tools
    (ALPACA, {}, [YES, YES, REFUSED, REFUSED]),
    (ALPACA, {"end_with_eos": "last"}, [NO, NO, REFUSED, REFUSED]),
    (DEEPSEEK_R1, {}, [YES, YES, NO, REFUSED]),
    (DEEPSEEK_R1, {"keep_last_thinking": False}, [YES, YES, YES, REFUSED]),
    (DEFAULT, {}, [YES, YES, REFUSED, REFUSED]),
    (GEMMA, {}, [YES, REFUSED, REFUSED, REFUSED]),
    (GEMMA, {"system_in_first_turn": True}, [YES, YES, REFUSED, REFUSED]),
    (GLM4, {}, [YES, YES, REFUSED, YES]),
    (LLAMA2, {}, [YES, YES, REFUSED, REFUSED]),
    (LLAMA3, {}, [YES, YES, REFUSED, YES]),
    (MISTRAL, {}, [YES, NO, REFUSED, YES]),
    (MISTRAL, {"place": "first"}, [YES, YES, REFUSED, YES]),
    (PHI, {}, [NO, NO, REFUSED, REFUSED]),
    (PHI, {"end_with_eos": False}, [YES, YES, REFUSED, REFUSED]),
    (QWEN, {}, [YES, YES, REFUSED, YES]),
    (QWEN3, {}, [NO, NO, NO, NO]),
    (VICUNA, {}, [YES, YES, REFUSED, REFUSED]),
]

# Whether the last answer starts exactly where the render of what precedes it, with the generation prompt, ends.
PROMPTS: list[tuple[Model, Mapping[str, Any], list[bool | None]]] = [
    # template, options                          rounds, system, reasoning, tools
    (ALPACA, {}, [YES, YES, REFUSED, REFUSED]),
    (DEEPSEEK_R1, {}, [NO, NO, YES, REFUSED]),  # the prompt opens <think>, which an answer without reasoning lacks
    (DEFAULT, {}, [YES, YES, REFUSED, REFUSED]),
    (GEMMA, {}, [YES, REFUSED, REFUSED, REFUSED]),
    (GLM4, {}, [YES, YES, REFUSED, YES]),
    (LLAMA2, {}, [YES, YES, REFUSED, REFUSED]),
    (LLAMA3, {}, [YES, YES, REFUSED, YES]),
    (MISTRAL, {}, [YES, YES, REFUSED, YES]),
    (PHI, {}, [YES, YES, REFUSED, REFUSED]),
    (QWEN, {}, [YES, YES, REFUSED, YES]),
    (QWEN3, {}, [YES, YES, YES, YES]),
    (QWEN3, {"enable_thinking": False}, [YES, YES, NO, YES]),  # the prompt closes <think>, which an answer with reasoning opens
    (VICUNA, {}, [YES, YES, REFUSED, REFUSED]),
]


def cells(table: list[tuple[Model, Mapping[str, Any], list[bool | None]]]) -> list[Any]:
    return [
        pytest.param(model, options, conversation, expected, id=f"{model.name} {dict(options) or ''} {conversation}")
        for model, options, row in table
        for conversation, expected in zip(CONVERSATIONS, row, strict=True)
    ]


@pytest.mark.parametrize(("model", "options", "conversation", "expected"), cells(PREFIXES))
def test_prefix_stability(model: Model, options: Mapping[str, Any], conversation: str, expected: bool | None) -> None:
    messages, tools = CONVERSATIONS[conversation]
    template = model.template(options)
    if expected is REFUSED:
        with pytest.raises(Refused):
            template.render(messages, tools=tools)
        return
    first_user = next(i for i, message in enumerate(messages) if message["role"] == "user")
    whole = template.render(messages, tools=tools)
    assert all(whole.startswith(template.render(messages[:k], tools=tools)) for k in range(first_user + 1, len(messages))) is expected


@pytest.mark.parametrize(("model", "options", "conversation", "expected"), cells(PROMPTS))
def test_the_answer_starts_where_the_generation_prompt_ends(
    model: Model, options: Mapping[str, Any], conversation: str, expected: bool | None
) -> None:
    messages, tools = CONVERSATIONS[conversation]
    template = model.template(options)
    if expected is REFUSED:
        with pytest.raises(Refused):
            template.render(messages, tools=tools)
        return
    prompt = template.render(messages[:-1], tools=tools, generation_prompt=True)
    assert (prompt == _before_last_answer(model, options, messages, tools)) is expected


def _before_last_answer(model: Model, options: Mapping[str, Any], messages: tuple[Message, ...], tools: tuple[dict[str, Any], ...]) -> str:
    """The render up to where transformers' mask says that the last answer starts."""
    ids, mask = model.encode(Golden(messages, "", tools, options))
    end = len(mask) - mask[::-1].index(1)
    start = end - mask[:end][::-1].index(0)
    return str(model.tokenizer.decode(ids[:start], clean_up_tokenization_spaces=False))


def test_every_named_template_is_in_the_tables() -> None:
    older = {"plain", "chatml"}  # have no generation tags
    assert {model.name for model, _, _ in PREFIXES} == {model.name for model, _, _ in PROMPTS} == set(named_templates()) - older
