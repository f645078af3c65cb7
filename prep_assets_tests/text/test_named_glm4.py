"""The template `glm4` against Zhipu's published format (THUDM/glm-4-9b-chat; without its default line THUDM/GLM-4-9B-0414)."""

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
    Model,
    NamedTemplateTests,
    Refusal,
)

GLM4 = Model(
    "glm4",
    control=("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    stops=("<|user|>", "<|observation|>"),
    eos="<|endoftext|>",
)

ABOUT = (
    "你是一个名为 ChatGLM 的人工智能助手。你是基于智谱AI训练的语言模型 GLM-4 模型开发的，"
    "你的任务是针对用户的问题和要求提供适当的答复和支持。\n\n"
)
TOOLS = """\
# 可用工具

## square

{
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
在调用上述函数时，请使用 Json 格式表示调用的参数。"""


class TestGlm4(NamedTemplateTests):
    model = GLM4
    goldens: ClassVar[dict[str, Golden]] = {
        "one round": Golden(ONE_ROUND, "[gMASK]<sop><|user|>\nHi<|assistant|>«\nHello!<|user|>»"),
        "two rounds with system": Golden(
            (SYSTEM, *TWO_ROUNDS),
            "[gMASK]<sop><|system|>\nBe brief.<|user|>\nHi<|assistant|>«\nHello!<|user|>»\nBye<|assistant|>«\nCiao.<|user|>»",
        ),
        "generation prompt": Golden((HI,), "[gMASK]<sop><|user|>\nHi<|assistant|>", prompt=True),
        "generation prompt of the second round": Golden(
            (*ONE_ROUND, HI), "[gMASK]<sop><|user|>\nHi<|assistant|>«\nHello!<|user|>»\nHi<|assistant|>", prompt=True
        ),
        "tool round": Golden(
            (SYSTEM, *TOOL_ROUND),
            f"[gMASK]<sop><|system|>\n{ABOUT}{TOOLS}<|system|>\nBe brief.<|user|>\n3 squared?<|assistant|>"
            '«square\n{"a": 3}<|observation|>»\n9<|assistant|>«\nIt is 9.<|user|>»',
            tools=(SQUARE,),
        ),
        "tools without the line about the model, bare schema": Golden(
            (ASK,),
            f"[gMASK]<sop><|system|>\n{TOOLS}<|user|>\n3 squared?<|assistant|>",
            tools=(SQUARE["function"],),
            options={"default_system": ""},
            prompt=True,
        ),
        "two calls after content": Golden(
            (ASK, {**CALL, "content": "Twice.", "tool_calls": CALL["tool_calls"] * 2}, RESULT, {**RESULT, "role": "observation"}, NINE),
            "[gMASK]<sop><|user|>\n3 squared?<|assistant|>"
            '«\nTwice.<|assistant|>square\n{"a": 3}<|assistant|>square\n{"a": 3}<|observation|>»'
            "\n9<|observation|>\n9<|assistant|>«\nIt is 9.<|user|>»",
        ),
    }
    refusals: ClassVar[dict[str, Refusal]] = {
        "unknown role": Refusal(
            ({"role": "critic", "content": "No."},), "knows the roles system, user, assistant and tool (or observation), not 'critic'"
        ),
        "reasoning": Refusal((HI, THOUGHT), "has no place for reasoning"),
        "two answers": Refusal((HI, HELLO, HELLO), "has a user turn after an answer and a tool turn after a tool call, not assistant"),
        "result without a call": Refusal(
            (HI, HELLO, RESULT), "has a user turn after an answer and a tool turn after a tool call, not tool"
        ),
        "call without a result": Refusal((ASK, CALL, HI), "has a user turn after an answer and a tool turn after a tool call, not user"),
        "prompt after an answer": Refusal(ONE_ROUND, "has no generation prompt after an answer or a tool call", prompt=True),
    }
