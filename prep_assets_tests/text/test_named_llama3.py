"""The template `llama3` against Meta's published format (meta-llama/Llama-3.1-8B-Instruct, and Meta-Llama-3-8B-Instruct without tools)."""

from __future__ import annotations

from typing import ClassVar

from prep_assets_tests.text.goldens import (
    ASK,
    BYE,
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
    Model,
    NamedTemplateTests,
    Refusal,
)

LLAMA3 = Model(
    "llama3",
    control=("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    stops=("<|eot_id|>",),
    bos="<|begin_of_text|>",
    eos="<|eot_id|>",
)

FUNCTIONS = """\
Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.Do not use variables.

{
    "type": "function",
    "function": {
        "name": "square",
        "description": "The a² of a.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {
                    "type": "number"
                }
            }
        }
    }
}

"""


class TestLlama3(NamedTemplateTests):
    model = LLAMA3
    goldens: ClassVar[dict[str, Golden]] = {
        "one round": Golden(
            ONE_ROUND,
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n«Hello!<|eot_id|>»",
        ),
        "two rounds with system": Golden(
            (SYSTEM, *TWO_ROUNDS),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n«Hello!<|eot_id|>»"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n«Ciao.<|eot_id|>»",
        ),
        "generation prompt": Golden(
            (HI,),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            prompt=True,
        ),
        "contents are trimmed": Golden(
            ({"role": "user", "content": " Hi\n"}, {"role": "assistant", "content": "\n\nHello! "}),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n«Hello!<|eot_id|>»",
        ),
        "tool round": Golden(
            (SYSTEM, *TOOL_ROUND),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
            "Environment: ipython\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\n"
            "Given the following functions, please respond with a JSON for a function call "
            f"with its proper arguments that best answers the given prompt.\n\n{FUNCTIONS}3 squared?<|eot_id|>"
            '<|start_header_id|>assistant<|end_header_id|>\n\n«{"name": "square", "parameters": {"a": 3}}<|eot_id|>»'
            '<|start_header_id|>ipython<|end_header_id|>\n\n"9"<|eot_id|>'
            "<|start_header_id|>assistant<|end_header_id|>\n\n«It is 9.<|eot_id|>»",
            tools=(SQUARE,),
        ),
        "tools in the system turn, result as it is": Golden(
            TOOL_ROUND,
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
            "Environment: ipython\nCutting Knowledge Date: December 2023\nToday Date: 01 Jan 2025\n\n"
            "You have access to the following functions. To call a function, please respond with JSON for a function call."
            f"{FUNCTIONS}<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\n3 squared?<|eot_id|>"
            '<|start_header_id|>assistant<|end_header_id|>\n\n«{"name": "square", "parameters": {"a": 3}}<|eot_id|>»'
            "<|start_header_id|>ipython<|end_header_id|>\n\n9<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n«It is 9.<|eot_id|>»",
            tools=(SQUARE,),
            options={"tools_in_user_message": False, "date_string": "01 Jan 2025", "tool_result_as_json": False},
        ),
        "dates as in Llama 3.1, system prompt trimmed": Golden(
            ({"role": "system", "content": " Be brief.\n"}, *ONE_ROUND),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
            "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n«Hello!<|eot_id|>»",
            options={"dates": True},
        ),
    }
    refusals: ClassVar[dict[str, Refusal]] = {
        "unknown role": Refusal(
            ({"role": "critic", "content": "No."},), "knows the roles system, user, assistant and tool (or ipython), not 'critic'"
        ),
        "reasoning": Refusal((HI, THOUGHT), "has no place for reasoning"),
        "two calls": Refusal(
            (ASK, {**CALL, "tool_calls": CALL["tool_calls"] * 2}, RESULT, NINE), "has one tool call in a turn, not 2", tools=(SQUARE,)
        ),
        "content beside a call": Refusal((ASK, {**CALL, "content": "Wait."}), "has a tool call or content in a turn, not both"),
        "no user turn to list tools in": Refusal((SYSTEM, HELLO, BYE), "lists tools in the first turn", tools=(SQUARE,)),
    }
