"""The template `mistral` against Mistral's published format (mistralai/Mistral-7B-Instruct-v0.3, mistral-common's V3 tokenizer)."""

from __future__ import annotations

from typing import ClassVar

from prep_assets_tests.text.goldens import (
    ASK,
    CALL,
    HELLO,
    HI,
    NINE,
    ONE_ROUND,
    RESULT,
    SQUARE,
    SYSTEM,
    THOUGHT,
    TOOL_ROUND,
    TWO_ROUNDS,
    Golden,
    Message,
    Model,
    NamedTemplateTests,
    Refusal,
)

MISTRAL = Model(
    "mistral",
    control=(
        "[INST]",
        "[/INST]",
        "[TOOL_CALLS]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
    ),
    stops=("</s>",),
    bos="<s>",
    eos="</s>",
)

TOOLS = (
    '[AVAILABLE_TOOLS] [{"type": "function", "function": {"name": "square", "description": "The a² of a.", '
    '"parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}][/AVAILABLE_TOOLS]'
)
FUNCTION = {"name": "square", "arguments": {"a": 3}}
CALL_WITH_ID: Message = {"role": "assistant", "tool_calls": [{"type": "function", "id": "abcdef123", "function": FUNCTION}]}


class TestMistral(NamedTemplateTests):
    model = MISTRAL
    goldens: ClassVar[dict[str, Golden]] = {
        "one round": Golden(ONE_ROUND, "<s>[INST] Hi[/INST]« Hello!</s>»"),
        "two rounds": Golden(TWO_ROUNDS, "<s>[INST] Hi[/INST]« Hello!</s>»[INST] Bye[/INST]« Ciao.</s>»"),
        "system stands in the last user turn": Golden(
            (SYSTEM, *TWO_ROUNDS), "<s>[INST] Hi[/INST]« Hello!</s>»[INST] Be brief.\n\nBye[/INST]« Ciao.</s>»"
        ),
        "system in the first user turn": Golden(
            (SYSTEM, *TWO_ROUNDS),
            "<s>[INST] Be brief.\n\nHi[/INST]« Hello!</s>»[INST] Bye[/INST]« Ciao.</s>»",
            options={"place": "first"},
        ),
        "generation prompt is empty": Golden((SYSTEM, HI), "<s>[INST] Be brief.\n\nHi[/INST]", prompt=True),
        "answers are trimmed": Golden(
            ({"role": "user", "content": " Hi "}, {"role": "assistant", "content": " Hello! "}), "<s>[INST]  Hi [/INST]« Hello!</s>»"
        ),
        "tool round": Golden(
            TOOL_ROUND,
            f"<s>{TOOLS}[INST] 3 squared?[/INST]"
            '«[TOOL_CALLS] [{"name": "square", "arguments": {"a": 3}}]</s>»'
            '[TOOL_RESULTS] {"content": 9}[/TOOL_RESULTS]« It is 9.</s>»',
            tools=(SQUARE,),
        ),
        "tools stand in the last user turn, with ids": Golden(
            (HI, HELLO, ASK, CALL_WITH_ID, {**RESULT, "tool_call_id": "abcdef123"}, NINE),
            f"<s>[INST] Hi[/INST]« Hello!</s>»{TOOLS}[INST] 3 squared?[/INST]"
            '«[TOOL_CALLS] [{"name": "square", "arguments": {"a": 3}, "id": "abcdef123"}]</s>»'
            '[TOOL_RESULTS] {"content": 9, "call_id": "abcdef123"}[/TOOL_RESULTS]« It is 9.</s>»',
            tools=(SQUARE,),
        ),
        "two tools in the first user turn, two calls": Golden(
            (ASK, {**CALL, "tool_calls": CALL["tool_calls"] * 2}, RESULT, RESULT, NINE, HI),
            '<s>[AVAILABLE_TOOLS] [{"type": "function", "function": {"name": "now"}}, {"type": "function", "function": {"name": "today"}}]'
            "[/AVAILABLE_TOOLS][INST] 3 squared?[/INST]"
            '«[TOOL_CALLS] [{"name": "square", "arguments": {"a": 3}}, {"name": "square", "arguments": {"a": 3}}]</s>»'
            '[TOOL_RESULTS] {"content": 9}[/TOOL_RESULTS][TOOL_RESULTS] {"content": 9}[/TOOL_RESULTS]« It is 9.</s>»[INST] Hi[/INST]',
            tools=({"type": "function", "function": {"name": "now"}}, {"name": "today"}),
            options={"place": "first"},
        ),
    }
    refusals: ClassVar[dict[str, Refusal]] = {
        "unknown role": Refusal(
            ({"role": "critic", "content": "No."},), "knows the roles system (first message only), user, assistant and tool, not 'critic'"
        ),
        "two users": Refusal((HI, HI), "needs roles that alternate user/assistant/user/assistant/..."),
        "reasoning": Refusal((HI, THOUGHT), "has no place for reasoning"),
        "content beside a call": Refusal((ASK, {**CALL, "content": "Wait."}), "has tool calls or content in a turn, not both"),
        "call id": Refusal(
            (ASK, {**CALL, "tool_calls": [{"id": "call_1", "function": FUNCTION}]}), "needs tool call ids of 9 characters, not 'call_1'"
        ),
        "result id": Refusal((ASK, CALL, {**RESULT, "tool_call_id": "call_1"}), "needs tool call ids of 9 characters, not 'call_1'"),
        "no user turn to list tools in": Refusal((CALL, RESULT), "lists tools before a user turn, and there is none", tools=(SQUARE,)),
        "option": Refusal(ONE_ROUND, "has the option place 'last' or 'first', not 'top'", options={"place": "top"}),
    }
