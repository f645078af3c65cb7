"""The template `phi` against Microsoft's published format (microsoft/Phi-3-mini-4k-instruct, microsoft/Phi-3.5-mini-instruct)."""

from __future__ import annotations

from typing import ClassVar

from prep_assets_tests.templates.goldens import (
    ASK,
    CALL,
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

PHI = Model("phi", control=("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"), stops=("<|end|>",), eos="<|endoftext|>")


class TestPhi(NamedTemplateTests):
    model = PHI
    goldens: ClassVar[dict[str, Golden]] = {
        "one round": Golden(ONE_ROUND, "<|user|>\nHi<|end|>\n<|assistant|>\n«Hello!<|end|>»\n<|endoftext|>"),
        "two rounds with system": Golden(
            (SYSTEM, *TWO_ROUNDS),
            "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n«Hello!<|end|>»\n"
            "<|user|>\nBye<|end|>\n<|assistant|>\n«Ciao.<|end|>»\n<|endoftext|>",
        ),
        "no end-of-text token": Golden(ONE_ROUND, "<|user|>\nHi<|end|>\n<|assistant|>\n«Hello!<|end|>»\n", options={"end_with_eos": False}),
        "an empty system turn is left out": Golden(
            ({"role": "system", "content": ""}, *ONE_ROUND), "<|user|>\nHi<|end|>\n<|assistant|>\n«Hello!<|end|>»\n<|endoftext|>"
        ),
        "generation prompt": Golden((HI,), "<|user|>\nHi<|end|>\n<|assistant|>\n", prompt=True),
        "nothing is trimmed": Golden(
            ({"role": "user", "content": " Hi\n"}, {"role": "assistant", "content": "\nHello! "}),
            "<|user|>\n Hi\n<|end|>\n<|assistant|>\n«\nHello! <|end|>»\n<|endoftext|>",
        ),
    }
    refusals: ClassVar[dict[str, Refusal]] = {
        "unknown role": Refusal(({"role": "critic", "content": "No."},), "knows the roles system, user and assistant, not 'critic'"),
        "tools": Refusal(ONE_ROUND, "has no tools", tools=(SQUARE,)),
        "tool call": Refusal((ASK, CALL), "has no tools"),
        "reasoning": Refusal((HI, THOUGHT), "has no place for reasoning"),
    }
