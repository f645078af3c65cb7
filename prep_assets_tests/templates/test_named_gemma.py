"""The template `gemma` against Google's published format (google/gemma-2-2b-it; google/gemma-3-1b-it for the system prompt)."""

from __future__ import annotations

from typing import ClassVar

from prep_assets_tests.templates.goldens import (
    ASK,
    CALL,
    HELLO,
    HI,
    ONE_ROUND,
    SQUARE,
    SYSTEM,
    THOUGHT,
    TWO_ROUNDS,
    Golden,
    Model,
    NamedTemplateTests,
    Refusal,
)

GEMMA = Model("gemma", control=("<start_of_turn>", "<end_of_turn>"), stops=("<end_of_turn>",), bos="<bos>", eos="<eos>")


class TestGemma(NamedTemplateTests):
    model = GEMMA
    goldens: ClassVar[dict[str, Golden]] = {
        "one round": Golden(ONE_ROUND, "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n«Hello!<end_of_turn>»\n"),
        "two rounds": Golden(
            TWO_ROUNDS,
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n«Hello!<end_of_turn>»\n"
            "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n«Ciao.<end_of_turn>»\n",
        ),
        "system as in Gemma 3": Golden(
            (SYSTEM, *ONE_ROUND),
            "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n«Hello!<end_of_turn>»\n",
            options={"system_in_first_turn": True},
        ),
        "generation prompt": Golden((HI,), "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n", prompt=True),
        "contents are trimmed": Golden(
            ({"role": "user", "content": " Hi\n"}, {"role": "assistant", "content": "\nHello! "}),
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n«Hello!<end_of_turn>»\n",
        ),
    }
    refusals: ClassVar[dict[str, Refusal]] = {
        "unknown role": Refusal(({"role": "critic", "content": "No."},), "knows the roles user and assistant, not 'critic'"),
        "system": Refusal((SYSTEM, *ONE_ROUND), "knows the roles user and assistant, not 'system'; the option system_in_first_turn"),
        "two users": Refusal((HI, HI), "needs roles that alternate user/assistant/user/assistant/..."),
        "assistant first": Refusal((HELLO, HI), "needs roles that alternate user/assistant/user/assistant/..."),
        "tools": Refusal(ONE_ROUND, "has no tools", tools=(SQUARE,)),
        "tool call": Refusal((ASK, CALL), "has no tools"),
        "reasoning": Refusal((HI, THOUGHT), "has no place for reasoning"),
    }
