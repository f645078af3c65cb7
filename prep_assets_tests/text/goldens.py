"""What the tests of all named templates share: golden renders with marks around what the model generates, and a tokenizer for them."""

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
REASONED = (HI, THOUGHT, BYE, PARTING)

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
