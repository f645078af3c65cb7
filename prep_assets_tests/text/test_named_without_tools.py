"""Templates without tools: those that write roles as plain text, `alpaca`, `vicuna` and `default`; `gemma`, `llama2` and `phi`.

`alpaca` and `default` are against ModelLink's GeneralInstructionHandler and its template ``default``, `vicuna` against FastChat's ``vicuna_v1.1``,
the others against the published formats: google/gemma-2-2b-it, and google/gemma-3-1b-it for the system prompt; meta-llama/Llama-2-7b-chat-hf;
microsoft/Phi-3-mini-4k-instruct and microsoft/Phi-3.5-mini-instruct.
"""

from __future__ import annotations

from typing import ClassVar

from prep_assets_tests.text.goldens import (
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
WITHOUT_TOOLS = {
    "tools": Refusal(ONE_ROUND, "has no tools", tools=(SQUARE,)),
    "tool call": Refusal((ASK, CALL), "has no tools"),
    "reasoning": Refusal((HI, THOUGHT), "has no place for reasoning"),
}
REFUSALS = {
    "unknown role": Refusal(
        ({"role": "critic", "content": "No."},), "knows the roles system (first message only), user and assistant, not 'critic'"
    ),
    "late system": Refusal((*ONE_ROUND, SYSTEM), "knows the roles system (first message only), user and assistant, not 'system'"),
    **WITHOUT_TOOLS,
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
        "one round of a tokenizer that begins texts": Golden(
            ONE_ROUND,
            f"<s>{ALPACA_SYSTEM}### Instruction:\nHi\n### Response:\n«Hello!\n</s>»",
            options={"begin_with_bos": True},
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
        **ALTERNATION,
        **WITHOUT_TOOLS,
    }


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
        **ALTERNATION,
        **WITHOUT_TOOLS,
    }


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
        **WITHOUT_TOOLS,
    }
