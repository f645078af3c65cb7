"""The templates that write roles as plain text: `alpaca`, `vicuna` and `default`.

`alpaca` and `default` are against ModelLink's GeneralInstructionHandler and its template ``default``, `vicuna` against FastChat's ``vicuna_v1.1``.
"""

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

ALPACA = Model("alpaca", control=(), stops=("</s>",), bos="<s>", eos="</s>")
VICUNA = Model("vicuna", control=(), stops=("</s>",), bos="<s>", eos="</s>")
DEFAULT = Model("default", control=(), stops=("</s>",), bos="<s>", eos="</s>")

ALPACA_SYSTEM = (
    "\nBelow is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately "
    "completes the request. Please note that you need to think through your response logically and step by step.\n"
)
VICUNA_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
REFUSALS = {
    "unknown role": Refusal(
        ({"role": "critic", "content": "No."},), "knows the roles system (first message only), user and assistant, not 'critic'"
    ),
    "late system": Refusal((*ONE_ROUND, SYSTEM), "knows the roles system (first message only), user and assistant, not 'system'"),
    "tools": Refusal(ONE_ROUND, "has no tools", tools=(SQUARE,)),
    "tool call": Refusal((ASK, CALL), "has no tools"),
    "reasoning": Refusal((HI, THOUGHT), "has no place for reasoning"),
}
ALTERNATION = {
    "two users": Refusal((HI, HI), "needs roles that alternate user/assistant/user/assistant/..."),
    "assistant first": Refusal((HELLO, HI), "needs roles that alternate user/assistant/user/assistant/..."),
}


class TestAlpaca(NamedTemplateTests):
    model = ALPACA
    goldens: ClassVar[dict[str, Golden]] = {
        "one round": Golden(ONE_ROUND, f"{ALPACA_SYSTEM}### Instruction:\nHi\n### Response:\n«Hello!\n</s>»"),
        "two rounds": Golden(
            TWO_ROUNDS,
            f"{ALPACA_SYSTEM}### Instruction:\nHi\n### Response:\n«Hello!\n</s>»### Instruction:\nBye\n### Response:\n«Ciao.\n</s>»",
        ),
        "two rounds with append-eod": Golden(
            TWO_ROUNDS,
            f"{ALPACA_SYSTEM}### Instruction:\nHi\n### Response:\n«Hello!\n»### Instruction:\nBye\n### Response:\n«Ciao.\n</s>»",
            options={"end_with_eos": "last"},
            stops=False,
        ),
        "two rounds without append-eod": Golden(
            TWO_ROUNDS,
            f"{ALPACA_SYSTEM}### Instruction:\nHi\n### Response:\n«Hello!\n»### Instruction:\nBye\n### Response:\n«Ciao.\n»",
            options={"end_with_eos": False},
            stops=False,
        ),
        "an instruction with an empty input": Golden(
            ({"role": "user", "content": "Hi\n"}, HELLO), f"{ALPACA_SYSTEM}### Instruction:\nHi\n\n### Response:\n«Hello!\n</s>»"
        ),
        "system": Golden((SYSTEM, *ONE_ROUND), "\nBe brief.\n### Instruction:\nHi\n### Response:\n«Hello!\n</s>»"),
        "no default system": Golden(ONE_ROUND, "### Instruction:\nHi\n### Response:\n«Hello!\n</s>»", options={"default_system": ""}),
        "generation prompt": Golden((HI,), f"{ALPACA_SYSTEM}### Instruction:\nHi\n### Response:\n", prompt=True),
    }
    refusals: ClassVar[dict[str, Refusal]] = {
        **REFUSALS,
        "option": Refusal(ONE_ROUND, "has the option end_with_eos true, 'last' or false, not 'all'", options={"end_with_eos": "all"}),
    }


class TestVicuna(NamedTemplateTests):
    model = VICUNA
    goldens: ClassVar[dict[str, Golden]] = {
        "one round": Golden(ONE_ROUND, f"<s>{VICUNA_SYSTEM} USER: Hi ASSISTANT:« Hello!</s>»"),
        "two rounds": Golden(TWO_ROUNDS, f"<s>{VICUNA_SYSTEM} USER: Hi ASSISTANT:« Hello!</s>»USER: Bye ASSISTANT:« Ciao.</s>»"),
        "system": Golden((SYSTEM, *ONE_ROUND), "<s>Be brief. USER: Hi ASSISTANT:« Hello!</s>»"),
        "no default system": Golden(ONE_ROUND, "<s>USER: Hi ASSISTANT:« Hello!</s>»", options={"default_system": ""}),
        "generation prompt": Golden((HI,), f"<s>{VICUNA_SYSTEM} USER: Hi ASSISTANT:", prompt=True),
    }
    refusals: ClassVar[dict[str, Refusal]] = {**REFUSALS, **ALTERNATION}


class TestDefault(NamedTemplateTests):
    model = DEFAULT
    goldens: ClassVar[dict[str, Golden]] = {
        "one round": Golden(ONE_ROUND, "Human: Hi\nAssistant:«Hello!</s>»"),
        "two rounds with system": Golden(
            (SYSTEM, *TWO_ROUNDS), "Be brief.\nHuman: Hi\nAssistant:«Hello!</s>»\nHuman: Bye\nAssistant:«Ciao.</s>»"
        ),
        "generation prompt": Golden((HI,), "Human: Hi\nAssistant:", prompt=True),
    }
    refusals: ClassVar[dict[str, Refusal]] = {**REFUSALS, **ALTERNATION}
