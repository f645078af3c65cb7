"""The template `deepseek-r1` against DeepSeek's published format (deepseek-ai/DeepSeek-R1 and its distillations)."""

from __future__ import annotations

from typing import ClassVar

from prep_assets_tests.text.goldens import (
    ASK,
    BYE,
    CALL,
    HI,
    ONE_ROUND,
    PARTING,
    REASONED,
    SQUARE,
    SYSTEM,
    THOUGHT,
    TWO_ROUNDS,
    Golden,
    Message,
    Model,
    NamedTemplateTests,
    Refusal,
)

DEEPSEEK_R1 = Model(
    "deepseek-r1",
    control=("<｜User｜>", "<｜Assistant｜>"),
    stops=("<｜end▁of▁sentence｜>",),
    bos="<｜begin▁of▁sentence｜>",
    eos="<｜end▁of▁sentence｜>",
)

WRITTEN: tuple[Message, ...] = (
    HI,
    {"role": "assistant", "content": "<think>\nA greeting.\n</think>\n\nHello!"},
    BYE,
    {"role": "assistant", "content": "<think>\nThey leave.\n</think>\n\nCiao."},
)


class TestDeepseekR1(NamedTemplateTests):
    model = DEEPSEEK_R1
    goldens: ClassVar[dict[str, Golden]] = {
        "one round": Golden(ONE_ROUND, "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>«Hello!<｜end▁of▁sentence｜>»"),
        "two rounds with system": Golden(
            (SYSTEM, *TWO_ROUNDS),
            "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Hi<｜Assistant｜>«Hello!<｜end▁of▁sentence｜>»"
            "<｜User｜>Bye<｜Assistant｜>«Ciao.<｜end▁of▁sentence｜>»",
        ),
        "system prompts are joined at the start": Golden(
            (SYSTEM, HI, {"role": "system", "content": "In Italian."}),
            "<｜begin▁of▁sentence｜>Be brief.\n\nIn Italian.<｜User｜>Hi",
        ),
        "generation prompt": Golden((HI,), "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜><think>\n", prompt=True),
        "the last answer keeps its reasoning": Golden(
            REASONED,
            "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>«Hello!<｜end▁of▁sentence｜>»"
            "<｜User｜>Bye<｜Assistant｜><think>\n«They leave.\n</think>\n\nCiao.<｜end▁of▁sentence｜>»",
        ),
        "reasoning written in the content": Golden(
            WRITTEN,
            "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>«\n\nHello!<｜end▁of▁sentence｜>»"
            "<｜User｜>Bye<｜Assistant｜><think>\n«They leave.\n</think>\n\nCiao.<｜end▁of▁sentence｜>»",
        ),
        "every answer to the last user turn keeps its reasoning": Golden(
            (HI, THOUGHT, {**PARTING, "reasoning_content": "\nThey leave.\n", "content": "\n\nCiao.\n"}),
            "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜><think>\n«A greeting.\n</think>\n\nHello!<｜end▁of▁sentence｜>»"
            "<｜Assistant｜><think>\n«They leave.\n</think>\n\nCiao.\n<｜end▁of▁sentence｜>»",
        ),
        "reasoning that does not follow the generation prompt": Golden(
            (HI, {"role": "assistant", "content": "<think>A greeting.</think>Hello!"}),
            "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>«<think>A greeting.</think>Hello!<｜end▁of▁sentence｜>»",
        ),
        "published template to the letter": Golden(
            WRITTEN,
            "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>«\n\nHello!<｜end▁of▁sentence｜>»"
            "<｜User｜>Bye<｜Assistant｜>«\n\nCiao.<｜end▁of▁sentence｜>»",
            options={"keep_last_thinking": False},
        ),
    }
    refusals: ClassVar[dict[str, Refusal]] = {
        "unknown role": Refusal(({"role": "critic", "content": "No."},), "knows the roles system, user and assistant, not 'critic'"),
        "tools": Refusal(ONE_ROUND, "has no tools", tools=(SQUARE,)),
        "tool call": Refusal((ASK, CALL), "has no tools"),
    }
