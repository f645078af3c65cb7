"""The template `llama2` against Meta's published format (meta-llama/Llama-2-7b-chat-hf)."""

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

LLAMA2 = Model("llama2", control=("[INST]", "[/INST]"), stops=("</s>",), bos="<s>", eos="</s>")


class TestLlama2(NamedTemplateTests):
    model = LLAMA2
    goldens: ClassVar[dict[str, Golden]] = {
        "one round": Golden(ONE_ROUND, "<s>[INST] Hi [/INST]« Hello! </s>»"),
        "two rounds": Golden(TWO_ROUNDS, "<s>[INST] Hi [/INST]« Hello! </s>»<s>[INST] Bye [/INST]« Ciao. </s>»"),
        "two rounds with system": Golden(
            (SYSTEM, *TWO_ROUNDS),
            "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST]« Hello! </s>»<s>[INST] Bye [/INST]« Ciao. </s>»",
        ),
        "generation prompt is empty": Golden((HI,), "<s>[INST] Hi [/INST]", prompt=True),
        "contents are stripped, the system prompt is not": Golden(
            (
                {"role": "system", "content": " Be brief. "},
                {"role": "user", "content": " Hi "},
                {"role": "assistant", "content": " Hello! "},
            ),
            "<s>[INST] <<SYS>>\n Be brief. \n<</SYS>>\n\n Hi [/INST]« Hello! </s>»",
        ),
    }
    refusals: ClassVar[dict[str, Refusal]] = {
        "unknown role": Refusal(
            ({"role": "critic", "content": "No."},), "knows the roles system (first message only), user and assistant, not 'critic'"
        ),
        "late system": Refusal((HI, HELLO, SYSTEM), "knows the roles system (first message only), user and assistant, not 'system'"),
        "two users": Refusal((HI, HI), "needs roles that alternate user/assistant/user/assistant/..."),
        "assistant first": Refusal((HELLO, HI), "needs roles that alternate user/assistant/user/assistant/..."),
        "tools": Refusal(ONE_ROUND, "has no tools", tools=(SQUARE,)),
        "tool call": Refusal((ASK, CALL), "has no tools"),
        "reasoning": Refusal((HI, THOUGHT), "has no place for reasoning"),
    }
