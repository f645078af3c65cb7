"""The shipped templates against the published formats of their models, turn by turn."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import pytest

from prep_assets.errors import Refused
from prep_assets.text.load_template import named_templates
from prep_assets.text.template import ChatTemplate

Message = dict[str, Any]

SYSTEM: Message = {"role": "system", "content": "Be brief."}
HI: Message = {"role": "user", "content": "Hi"}
HELLO: Message = {"role": "assistant", "content": "Hello!"}
BYE: Message = {"role": "user", "content": "Bye"}
CIAO: Message = {"role": "assistant", "content": "Ciao."}
ONE_ROUND = (HI, HELLO)
TWO_ROUNDS = (HI, HELLO, BYE, CIAO)

THOUGHT: Message = {"role": "assistant", "content": "Hello!", "reasoning_content": "A greeting."}
PARTING: Message = {"role": "assistant", "content": "Ciao.", "reasoning_content": "They leave."}

SQUARE = {
    "type": "function",
    "function": {
        "name": "square",
        "description": "The a² of a.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
    },
}
ASK: Message = {"role": "user", "content": "3 squared?"}
CALL: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "square", "arguments": {"a": 3}}}],
}
RESULT: Message = {"role": "tool", "name": "square", "content": "9"}
NINE: Message = {"role": "assistant", "content": "It is 9."}
TOOL_ROUND = (ASK, CALL, RESULT, NINE)


@dataclass(frozen=True)
class Model:
    """A named template with the special tokens of its model.

    Attributes:
        name: of the template.
        control: the model's control tokens.
        stops: those that end an assistant's turn.
    """

    name: str
    control: tuple[str, ...]
    stops: tuple[str, ...]
    bos: str = ""
    eos: str = ""

    @cached_property
    def special(self) -> dict[str, str]:
        return {name: text for name, text in (("bos_token", self.bos), ("eos_token", self.eos)) if text}

    def template(self, options: Mapping[str, Any] | None = None) -> ChatTemplate:
        return ChatTemplate(self.name, named_templates()[self.name], self.special, options or {})

    @cached_property
    def tokenizer(self) -> Any:
        """One token for every byte, and one for each control token."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        backend = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens([*self.control, *self.special.values()])
        return PreTrainedTokenizerFast(tokenizer_object=backend, **self.special)

    def encode(self, golden: Golden) -> tuple[list[int], list[int]]:
        """Ids and mask of generated tokens, as transformers' `apply_chat_template` gives them for the conversation of `golden`."""
        encoded = self.tokenizer.apply_chat_template(
            list(golden.messages),
            tools=list(golden.tools) or None,
            chat_template=self.template().source,
            add_generation_prompt=golden.prompt,
            return_assistant_tokens_mask=True,
            return_dict=True,
            **golden.options,
        )
        return encoded["input_ids"], encoded["assistant_masks"]


@dataclass(frozen=True)
class Golden:
    """A render, written out by hand from the model's published format.

    Attributes:
        marked: the render with ``«`` and ``»`` around what the model generates.
        prompt: whether it ends with the generation prompt.
        stops: whether every generated text ends with a stop token.
    """

    messages: Sequence[Message]
    marked: str
    tools: Sequence[Mapping[str, Any]] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    prompt: bool = False
    stops: bool = True

    @property
    def text(self) -> str:
        return re.sub("[«»]", "", self.marked)

    @property
    def parts(self) -> list[tuple[str, bool]]:
        """The render cut at the marks: text, and whether the model generates it."""
        cut = re.split("[«»]", self.marked)
        return [(text, number % 2 == 1) for number, text in enumerate(cut) if text]


@dataclass(frozen=True)
class Refusal:
    """A conversation that the template refuses, and what the message says."""

    messages: Sequence[Message]
    says: str
    tools: Sequence[Mapping[str, Any]] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    prompt: bool = False


class NamedTemplateTests:
    """The tests that every named template passes; a subclass gives its model, goldens and refusals."""

    model: ClassVar[Model]
    goldens: ClassVar[Mapping[str, Golden]]
    refusals: ClassVar[Mapping[str, Refusal]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        for fixture, cases in (("golden", self.goldens), ("refusal", self.refusals)):
            if fixture in metafunc.fixturenames:
                metafunc.parametrize(fixture, cases.values(), ids=cases.keys())

    def test_renders_the_published_format(self, golden: Golden) -> None:
        template = self.model.template(golden.options)
        assert template.render(golden.messages, tools=golden.tools, generation_prompt=golden.prompt) == golden.text

    def test_generation_tags_change_nothing(self, golden: Golden) -> None:
        bare = re.sub(r"{%-? (end)?generation -?%}", "", self.model.template().source)
        assert "generation -%}" not in bare
        template = ChatTemplate(self.model.name, bare, self.model.special, golden.options)
        assert template.render(golden.messages, tools=golden.tools, generation_prompt=golden.prompt) == golden.text

    def test_transformers_marks_what_the_model_generates(self, golden: Golden) -> None:
        ids, mask = self.model.encode(golden)
        parts = [(self.model.tokenizer.encode(text, add_special_tokens=False), generated) for text, generated in golden.parts]
        assert ids == [token for tokens, _ in parts for token in tokens]
        assert mask == [int(generated) for tokens, generated in parts for _ in tokens]

    def test_every_answer_ends_with_one_stop_token(self, golden: Golden) -> None:
        ids, mask = self.model.encode(golden)
        stops = {self.model.tokenizer.convert_tokens_to_ids(stop) for stop in self.model.stops}
        ends = [i for i, generated in enumerate(mask) if generated and not any(mask[i + 1 : i + 2])]
        assert all(ids[end] in stops and ids[end - 1] not in stops for end in ends) is golden.stops

    def test_refuses(self, refusal: Refusal) -> None:
        template = self.model.template(refusal.options)
        with pytest.raises(Refused, match=re.escape(refusal.says)) as caught:
            template.render(refusal.messages, tools=refusal.tools, generation_prompt=refusal.prompt)
        assert f"template '{self.model.name}'" in caught.value.detail


# The shipped templates against the published formats of their models, turn by turn.

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
        "system prompts are joined at the start": Golden(
            (SYSTEM, HI, {"role": "system", "content": "In Italian."}), "<｜begin▁of▁sentence｜>Be brief.\n\nIn Italian.<｜User｜>Hi"
        ),
        "generation prompt": Golden((HI,), "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜><think>\n", prompt=True),
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


# The template `glm4` against Zhipu's published format (THUDM/glm-4-9b-chat; without its default line THUDM/GLM-4-9B-0414).

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
GLM4_TOOLS = """\
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
        "generation prompt": Golden((HI,), "[gMASK]<sop><|user|>\nHi<|assistant|>", prompt=True),
        "tool round": Golden(
            (SYSTEM, *TOOL_ROUND),
            f"[gMASK]<sop><|system|>\n{ABOUT}{GLM4_TOOLS}<|system|>\nBe brief.<|user|>\n3 squared?<|assistant|>"
            '«square\n{"a": 3}<|observation|>»\n9<|assistant|>«\nIt is 9.<|user|>»',
            tools=(SQUARE,),
        ),
        "tools without the line about the model, bare schema": Golden(
            (ASK,),
            f"[gMASK]<sop><|system|>\n{GLM4_TOOLS}<|user|>\n3 squared?<|assistant|>",
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
        "call without a result": Refusal((ASK, CALL, HI), "has a user turn after an answer and a tool turn after a tool call, not user"),
        "prompt after an answer": Refusal(ONE_ROUND, "has no generation prompt after an answer or a tool call", prompt=True),
    }


# The template `llama3` against Meta's published format (meta-llama/Llama-3.1-8B-Instruct, and Meta-Llama-3-8B-Instruct without tools).

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


# The template `mistral` against Mistral's published format (mistralai/Mistral-7B-Instruct-v0.3, mistral-common's V3 tokenizer).

MISTRAL = Model(
    "mistral",
    control=("[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    stops=("</s>",),
    bos="<s>",
    eos="</s>",
)

MISTRAL_TOOLS = (
    '[AVAILABLE_TOOLS] [{"type": "function", "function": {"name": "square", "description": "The a² of a.", '
    '"parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}][/AVAILABLE_TOOLS]'
)
FUNCTION = {"name": "square", "arguments": {"a": 3}}
CALL_WITH_ID: Message = {"role": "assistant", "tool_calls": [{"type": "function", "id": "abcdef123", "function": FUNCTION}]}


class TestMistral(NamedTemplateTests):
    model = MISTRAL
    goldens: ClassVar[dict[str, Golden]] = {
        "system stands in the last user turn": Golden(
            (SYSTEM, *TWO_ROUNDS), "<s>[INST] Hi[/INST]« Hello!</s>»[INST] Be brief.\n\nBye[/INST]« Ciao.</s>»"
        ),
        "system in the first user turn": Golden(
            (SYSTEM, *TWO_ROUNDS), "<s>[INST] Be brief.\n\nHi[/INST]« Hello!</s>»[INST] Bye[/INST]« Ciao.</s>»", options={"place": "first"}
        ),
        "generation prompt is empty": Golden((SYSTEM, HI), "<s>[INST] Be brief.\n\nHi[/INST]", prompt=True),
        "answers are trimmed": Golden(
            ({"role": "user", "content": " Hi "}, {"role": "assistant", "content": " Hello! "}), "<s>[INST]  Hi [/INST]« Hello!</s>»"
        ),
        "tools stand in the last user turn, with ids": Golden(
            (HI, HELLO, ASK, CALL_WITH_ID, {**RESULT, "tool_call_id": "abcdef123"}, NINE),
            f"<s>[INST] Hi[/INST]« Hello!</s>»{MISTRAL_TOOLS}[INST] 3 squared?[/INST]"
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


# The templates `qwen` and `qwen3` against Qwen's published formats (Qwen/Qwen2.5-7B-Instruct, Qwen/Qwen3-0.6B).

CHATML = ("<|im_start|>", "<|im_end|>")
QWEN = Model("qwen", control=CHATML, stops=("<|im_end|>",), eos="<|im_end|>")
QWEN3 = Model("qwen3", control=CHATML, stops=("<|im_end|>",), eos="<|im_end|>")

QWEN_SYSTEM = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
QWEN_TOOLS = """\
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
        "no default system": Golden(
            ONE_ROUND, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Hello!<|im_end|>»\n", options={"default_system": ""}
        ),
        "generation prompt": Golden((HI,), f"{QWEN_SYSTEM}<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", prompt=True),
        "tool round": Golden(
            TOOL_ROUND,
            f"<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.\n\n{QWEN_TOOLS}"
            f"<|im_start|>user\n3 squared?<|im_end|>\n<|im_start|>assistant\n«{CALLED}<|im_end|>»\n"
            "<|im_start|>user\n<tool_response>\n9\n</tool_response><|im_end|>\n<|im_start|>assistant\n«It is 9.<|im_end|>»\n",
            tools=(SQUARE,),
        ),
        "two calls after content": Golden(
            (SYSTEM, ASK, TWO_CALLS, RESULT, RESULT, NINE),
            f"<|im_start|>system\nBe brief.\n\n{QWEN_TOOLS}"
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
        "generation prompt without thinking": Golden(
            (HI,),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
            options={"enable_thinking": False},
            prompt=True,
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
            f"<|im_start|>system\nBe brief.\n\n{QWEN_TOOLS}"
            f"<|im_start|>user\n3 squared?<|im_end|>\n<|im_start|>assistant\n«{CALLED}<|im_end|>»\n"
            "<|im_start|>user\n<tool_response>\n9\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n«<think>\n\n</think>\n\nIt is 9.<|im_end|>»\n",
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


# Templates without tools: those that write roles as plain text, `alpaca`, `vicuna` and `default`; `gemma`, `llama2` and `phi`.

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
        "one round of a tokenizer that begins texts": Golden(
            ONE_ROUND, f"<s>{ALPACA_SYSTEM}### Instruction:\nHi\n### Response:\n«Hello!\n</s>»", options={"begin_with_bos": True}
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
        "two rounds": Golden(TWO_ROUNDS, f"<s>{VICUNA_SYSTEM} USER: Hi ASSISTANT:« Hello!</s>»USER: Bye ASSISTANT:« Ciao.</s>»"),
        "system": Golden((SYSTEM, *ONE_ROUND), "<s>Be brief. USER: Hi ASSISTANT:« Hello!</s>»"),
        "no default system": Golden(ONE_ROUND, "<s>USER: Hi ASSISTANT:« Hello!</s>»", options={"default_system": ""}),
        "generation prompt": Golden((HI,), f"<s>{VICUNA_SYSTEM} USER: Hi ASSISTANT:", prompt=True),
    }
    refusals: ClassVar[dict[str, Refusal]] = {**REFUSALS, **ALTERNATION}


class TestDefault(NamedTemplateTests):
    model = DEFAULT
    goldens: ClassVar[dict[str, Golden]] = {
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
        "two rounds": Golden(TWO_ROUNDS, "<s>[INST] Hi [/INST]« Hello! </s>»<s>[INST] Bye [/INST]« Ciao. </s>»"),
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


def test_every_named_template_has_goldens() -> None:
    older = {"plain", "chatml"}  # have no generation tags
    assert {tests.model.name for tests in NamedTemplateTests.__subclasses__()} == set(named_templates()) - older
