"""The templates `qwen` and `qwen3` against Qwen's published formats (Qwen/Qwen2.5-7B-Instruct, Qwen/Qwen3-0.6B)."""

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
    PARTING,
    REASONED,
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

CHATML = ("<|im_start|>", "<|im_end|>")
QWEN = Model("qwen", control=CHATML, stops=("<|im_end|>",), eos="<|im_end|>")
QWEN3 = Model("qwen3", control=CHATML, stops=("<|im_end|>",), eos="<|im_end|>")

QWEN_SYSTEM = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
TOOLS = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{"type": "function", "function": {"name": "square", "description": "The a² of a.", \
"parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
"""
CALLED = '<tool_call>\n{"name": "square", "arguments": {"a": 3}}\n</tool_call>'
TWO_CALLS = {**CALL, "content": "Twice.", "tool_calls": CALL["tool_calls"] * 2}
UNKNOWN = Refusal(({"role": "critic", "content": "No."},), "knows the roles system, user, assistant and tool, not 'critic'")


class TestQwen(NamedTemplateTests):
    model = QWEN
    goldens: ClassVar[dict[str, Golden]] = {
        "one round": Golden(ONE_ROUND, f"{QWEN_SYSTEM}<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Hello!<|im_end|>»\n"),
        "two rounds with system": Golden(
            (SYSTEM, *TWO_ROUNDS),
            "<|im_start|>system\nBe brief.<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Hello!<|im_end|>»\n"
            "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n«Ciao.<|im_end|>»\n",
        ),
        "no default system": Golden(
            ONE_ROUND,
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Hello!<|im_end|>»\n",
            options={"default_system": ""},
        ),
        "generation prompt": Golden((HI,), f"{QWEN_SYSTEM}<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", prompt=True),
        "tool round": Golden(
            TOOL_ROUND,
            f"<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.\n\n{TOOLS}"
            f"<|im_start|>user\n3 squared?<|im_end|>\n<|im_start|>assistant\n«{CALLED}<|im_end|>»\n"
            "<|im_start|>user\n<tool_response>\n9\n</tool_response><|im_end|>\n<|im_start|>assistant\n«It is 9.<|im_end|>»\n",
            tools=(SQUARE,),
        ),
        "two calls after content": Golden(
            (SYSTEM, ASK, TWO_CALLS, RESULT, RESULT, NINE),
            f"<|im_start|>system\nBe brief.\n\n{TOOLS}"
            f"<|im_start|>user\n3 squared?<|im_end|>\n<|im_start|>assistant\n«Twice.\n{CALLED}\n{CALLED}<|im_end|>»\n"
            "<|im_start|>user\n<tool_response>\n9\n</tool_response>\n<tool_response>\n9\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n«It is 9.<|im_end|>»\n",
            tools=(SQUARE,),
        ),
    }
    refusals: ClassVar[dict[str, Refusal]] = {"unknown role": UNKNOWN, "reasoning": Refusal((HI, THOUGHT), "has no place for reasoning")}


class TestQwen3(NamedTemplateTests):
    model = QWEN3
    goldens: ClassVar[dict[str, Golden]] = {
        "one round": Golden(
            ONE_ROUND, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<think>\n\n</think>\n\nHello!<|im_end|>»\n"
        ),
        "one round without thinking": Golden(
            ONE_ROUND,
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n«Hello!<|im_end|>»\n",
            options={"enable_thinking": False},
        ),
        "two rounds with system": Golden(
            (SYSTEM, *TWO_ROUNDS),
            "<|im_start|>system\nBe brief.<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Hello!<|im_end|>»\n"
            "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n«<think>\n\n</think>\n\nCiao.<|im_end|>»\n",
        ),
        "generation prompt": Golden((HI,), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", prompt=True),
        "generation prompt without thinking": Golden(
            (HI,),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
            options={"enable_thinking": False},
            prompt=True,
        ),
        "reasoning of history is left out": Golden(
            REASONED,
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Hello!<|im_end|>»\n"
            "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n«<think>\nThey leave.\n</think>\n\nCiao.<|im_end|>»\n",
        ),
        "reasoning written in the content": Golden(
            (
                HI,
                {"role": "assistant", "content": "<think>\nA greeting.\n</think>\n\nHello!"},
                BYE,
                {"role": "assistant", "content": "<think>\nThey leave.\n</think>\n\nCiao."},
            ),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Hello!<|im_end|>»\n"
            "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n«<think>\nThey leave.\n</think>\n\nCiao.<|im_end|>»\n",
        ),
        "outer newlines of reasoning are stripped": Golden(
            (BYE, {**PARTING, "reasoning_content": "\nThey leave.\n", "content": "\n\nCiao.\n"}),
            "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n«<think>\nThey leave.\n</think>\n\nCiao.\n<|im_end|>»\n",
        ),
        "thinking allowed": Golden(
            (BYE, PARTING),
            "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n«<think>\nThey leave.\n</think>\n\nCiao.<|im_end|>»\n",
            options={"enable_thinking": True},
        ),
        "thinking allowed, none given": Golden(
            ONE_ROUND,
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<think>\n\n</think>\n\nHello!<|im_end|>»\n",
            options={"enable_thinking": True},
        ),
        "reasoning without thinking": Golden(
            (BYE, PARTING),
            "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n«<think>\nThey leave.\n</think>\n\nCiao.<|im_end|>»\n",
            options={"enable_thinking": False},
        ),
        "a tool response in a user turn is no query": Golden(
            (HI, THOUGHT, {"role": "user", "content": "<tool_response>\n9\n</tool_response>"}, NINE),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<think>\nA greeting.\n</think>\n\nHello!<|im_end|>»\n"
            "<|im_start|>user\n<tool_response>\n9\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n«<think>\n\n</think>\n\nIt is 9.<|im_end|>»\n",
        ),
        "empty reasoning before a call is left out": Golden(
            (ASK, {**CALL, "content": "<think>\n\n</think>\n\nOne."}, RESULT, NINE),
            f"<|im_start|>user\n3 squared?<|im_end|>\n<|im_start|>assistant\n«One.\n{CALLED}<|im_end|>»\n"
            "<|im_start|>user\n<tool_response>\n9\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n«<think>\n\n</think>\n\nIt is 9.<|im_end|>»\n",
        ),
        "tool round": Golden(
            (SYSTEM, *TOOL_ROUND),
            f"<|im_start|>system\nBe brief.\n\n{TOOLS}"
            f"<|im_start|>user\n3 squared?<|im_end|>\n<|im_start|>assistant\n«{CALLED}<|im_end|>»\n"
            "<|im_start|>user\n<tool_response>\n9\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n«<think>\n\n</think>\n\nIt is 9.<|im_end|>»\n",
            tools=(SQUARE,),
        ),
        "reasoning before a call stays until the next query": Golden(
            (ASK, {**CALL, "reasoning_content": "A tool."}, RESULT, {**NINE, "reasoning_content": "Done."}),
            f"<|im_start|>system\n{TOOLS}"
            f"<|im_start|>user\n3 squared?<|im_end|>\n<|im_start|>assistant\n«<think>\nA tool.\n</think>\n\n{CALLED}<|im_end|>»\n"
            "<|im_start|>user\n<tool_response>\n9\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n«<think>\nDone.\n</think>\n\nIt is 9.<|im_end|>»\n",
            tools=(SQUARE,),
        ),
        "two calls after content in history": Golden(
            (ASK, TWO_CALLS, RESULT, RESULT, NINE, HI, HELLO),
            f"<|im_start|>user\n3 squared?<|im_end|>\n<|im_start|>assistant\n«Twice.\n{CALLED}\n{CALLED}<|im_end|>»\n"
            "<|im_start|>user\n<tool_response>\n9\n</tool_response>\n<tool_response>\n9\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n«It is 9.<|im_end|>»\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<think>\n\n</think>\n\nHello!<|im_end|>»\n",
        ),
    }
    refusals: ClassVar[dict[str, Refusal]] = {"unknown role": UNKNOWN}
