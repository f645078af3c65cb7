"""Renderers that write token ids in code instead of a template, Prime Intellect's and Tinker's, beside ours: the same ids, and which of them each trains.

A tokenizer of a family has GPT-2's merges, Llama 3's rule for where words end, which Qwen and GLM share, and the family's control tokens; the template is the
family's own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from transformers import PreTrainedTokenizerFast

import prep_assets as pa
from prep_assets.errors import Refused
from prep_assets.extensions.doctor.labels import HEADER, OTHER_TEXT, PIECES, Ours, diagnose
from prep_assets.samples import Sample
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.extensions.exports.readers import reader, stand_in

pytestmark = pytest.mark.readers


WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def control(*names: str) -> tuple[str, ...]:
    return tuple(f"<|{name}|>" for name in names)


QWEN = (
    *control("im_start", "im_end", "endoftext", "vision_start", "vision_end", "image_pad", "video_pad"),
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
)
GLM = (
    *(
        "[gMASK]",
        "<sop>",
        *control("system", "user", "assistant", "observation", "endoftext"),
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
    ),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_response>", "</tool_response>", "/nothink"),
)
LLAMA = control("begin_of_text", "start_header_id", "end_header_id", "eot_id", "eom_id", "end_of_text", "python_tag")
_PARTS = ("begin▁of▁sentence", "end▁of▁sentence", "User", "Assistant", "tool▁sep")
DEEPSEEK = (
    *(f"<｜{part}｜>" for part in _PARTS),
    *(f"<｜tool▁{what}▁{edge}｜>" for what in ("calls", "call", "outputs", "output") for edge in ("begin", "end")),
    *("<think>", "</think>"),
)
FAMILIES: dict[str, tuple[str, tuple[str, ...], str | None, str, frozenset[str]]] = {
    "qwen3": ("Qwen3", QWEN, None, "<|im_end|>", frozenset()),
    "qwen3_vl": ("Qwen3VL", QWEN, None, "<|im_end|>", frozenset()),
    "llama3_1": ("Llama3", LLAMA, "<|begin_of_text|>", "<|eot_id|>", frozenset()),
    "llama3_2": ("Llama3", LLAMA, "<|begin_of_text|>", "<|eot_id|>", frozenset()),
    "deepseekv3": ("DeepSeekV3", DEEPSEEK, "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", frozenset()),
    "nemotron_3_nano": ("Nemotron3", (*QWEN, "<s>", "</s>"), None, "<|im_end|>", frozenset({"<think>", "\n"})),
    "qwen3_5_think": ("Qwen35", QWEN, None, "<|im_end|>", frozenset({"<think>", "\n"})),
    "qwen3_6": ("Qwen36", QWEN, None, "<|im_end|>", frozenset({"<think>", "\n"})),
    "glm4moe": ("GLM45", GLM, None, "<|endoftext|>", frozenset({"\n"})),
}
"""Template → its renderer, control tokens, begin and end of text, and the tokens that only one of the two trains. They stand between the header of an answer
and its first word: where the generation prompt writes them the model does not sample them, so ours leaves them out; where it does not, ours trains them."""


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


TOOL = {
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
}
CALL = {"type": "function", "id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}
CHATS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "one": ([said("user", "Hi there."), said("assistant", "Hello! How are you?")], []),
    "two": ([said("user", "Hi."), said("assistant", "Hello."), said("user", "And now?"), said("assistant", "Good bye.")], []),
    "system": ([said("system", "Be brief."), said("user", "Hi."), said("assistant", "Hello.")], []),
    "reasoning": ([said("user", "2 + 2?"), said("assistant", "4", reasoning_content="Two and two.")], []),
    "tools": (
        [
            said("user", "1 + 2?"),
            said("assistant", "", tool_calls=[CALL]),
            said("tool", "3", tool_call_id="c1", name="add"),
            said("assistant", "It is 3."),
        ],
        [{"type": "function", "function": TOOL}],
    ),
}
NOT_SHOWN = {("reasoning", name) for name in ("qwen3_vl", "llama3_1", "llama3_2", "deepseekv3")} | {("tools", "deepseekv3")}
"""Chats of which these templates drop a part: ours refuses them."""


@pytest.fixture(scope="module")
def renderers() -> Any:
    stand_in("openai", "openai_harmony")
    sys.modules["openai_harmony"].__spec__ = None
    return reader("renderers.base"), reader("renderers.configs")


def family_tokenizer(folder: Path, name: str, real_data: Path) -> tuple[Path, Any]:
    _, special, begin, end, _ = FAMILIES[name]
    backend = Tokenizer.from_file(str(real_data / "tokenizers" / "gpt2" / "tokenizer.json"))
    backend.pre_tokenizer = Sequence([Split(Regex(WORDS), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=begin, eos_token=end)
    tokenizer.chat_template = (real_data / "chat_templates" / "trl" / f"{name}.jinja").read_text("utf-8")
    tokenizer.save_pretrained(folder / name)
    return folder / name, tokenizer


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_ids_and_which_are_trained(name: str, chat: str, renderers: Any, real_data: Path, tmp_path: Path) -> None:
    base, configs = renderers
    (kind, _, _, _, apart), (messages, tools) = FAMILIES[name], CHATS[chat]
    folder, tokenizer = family_tokenizer(tmp_path, name, real_data)
    if (chat, name) in NOT_SHOWN:
        with pytest.raises(Refused, match="template_drops"):
            pa.render(messages, tokenizer=folder, tools=tools)
        return
    theirs = base.create_renderer(tokenizer, getattr(configs, f"{kind}RendererConfig")()).render(messages, tools=tools or None)
    ours = pa.encode(pa.render(messages, tokenizer=folder, tools=tools))
    assert ours.ids.tolist() == list(theirs.token_ids)
    differing = {
        tokenizer.decode([token])
        for token, trained, sampled in zip(ours.ids.tolist(), ours.loss_mask > 0, theirs.sampled_mask, strict=True)
        if trained != sampled
    }
    assert differing <= apart
    assert (ours.loss_mask > 0).any()


_THINK: dict[str, frozenset[str] | None] = {"one": None, "two": None, "system": None, "reasoning": frozenset({"<think>", "\n"})}
_SAME: dict[str, frozenset[str] | None] = dict.fromkeys(("one", "two", "system"), frozenset())
_EMPTY = frozenset({"<think>", "</think>"})
TINKER: dict[str, tuple[str, str, dict[str, frozenset[str] | None]]] = {
    "llama3_1": ("llama3", "llama3", _SAME),
    "qwen3_vl": ("qwen3_vl", "tokenizer", _SAME),
    "qwen3": ("qwen3", "tokenizer", dict.fromkeys(CHATS.keys() - {"tools"})),
    "qwen3_5_think": ("qwen3_5", "tokenizer", _THINK),
    "qwen3_6": ("qwen3_5", "tokenizer", _THINK),
    "nemotron_3_nano": ("nemotron3", "tokenizer", {**dict.fromkeys(_SAME, _EMPTY), "reasoning": frozenset({"<think>", "\n"})}),
}
"""Template → Tinker's name of its renderer, our template, and for each chat the tokens that only one of the two trains, as in `FAMILIES`;
`None`: other ids of the same text, as it encodes the tags of reasoning and what follows them apart. Its Llama 3 writes no date, as our `llama3` does not."""


@pytest.mark.parametrize(("name", "chat"), [(name, chat) for name, (_, _, chats) in TINKER.items() for chat in sorted(chats)])
def test_tinker_writes_the_same_text_and_which_tokens_it_trains(name: str, chat: str, real_data: Path, tmp_path: Path) -> None:
    """Its rows end with the last stop: the line break that the template writes behind is ours alone, and not trained."""
    tinker = reader("tinker_cookbook.renderers")
    called, template, chats = TINKER[name]
    folder, tokenizer = family_tokenizer(tmp_path, name, real_data)
    ours = pa.encode(pa.render(CHATS[chat][0], tokenizer=folder, template=template))
    renderer = tinker.get_renderer(called, tokenizer, model_name=name)
    rendered, weights = renderer.build_supervised_example(
        list(map(_in_parts, CHATS[chat][0])), train_on_what=tinker.TrainOnWhat.ALL_ASSISTANT_MESSAGES
    )
    theirs, ids, trained = rendered.to_ints(), ours.ids.tolist(), (ours.loss_mask > 0).tolist()
    text, their_text = tokenizer.decode(ids), tokenizer.decode(theirs)
    assert text in (their_text, f"{their_text}\n")
    apart = chats[chat]
    assert (ids[: len(theirs)] == theirs) == (apart is not None)
    if apart is not None:
        assert any(trained) and not any(trained[len(theirs) :])
        pairs = zip(theirs, trained, weights.tolist(), strict=False)
        assert {tokenizer.decode([token]) for token, one, weight in pairs if one != (weight > 0)} == apart


def _in_parts(message: dict[str, Any]) -> dict[str, Any]:
    """A message as Tinker has it: reasoning is a part of the content."""
    if "reasoning_content" not in message:
        return message
    parts = [{"type": "thinking", "thinking": message["reasoning_content"]}, {"type": "text", "text": message["content"]}]
    return {"role": message["role"], "content": parts}


@pytest.mark.parametrize(
    ("trainer", "name", "template", "renderer", "equal", "reasons"),
    [
        ("prime-rl", "qwen3", "tokenizer", "qwen3", 5, {}),
        ("prime-rl", "qwen3_6", "tokenizer", "qwen3.6", 0, {HEADER: 5}),
        ("prime-rl", "qwen3_6", "tokenizer", "qwen3", 0, {OTHER_TEXT: 1, HEADER: 5}),
        ("tinker", "llama3_1", "llama3", "llama3", 3, {}),
        ("tinker", "qwen3_vl", "tokenizer", "qwen3_vl", 3, {}),
        ("tinker", "qwen3", "tokenizer", "qwen3", 0, {PIECES: 4}),
    ],
)
def test_doctor(
    trainer: str,
    name: str,
    template: str,
    renderer: str,
    equal: int,
    reasons: dict[str, int],
    renderers: Any,
    real_data: Path,
    tmp_path: Path,
) -> None:
    """`doctor` runs their code on the tokenizer that it compares with."""
    reader("renderers.base" if trainer == "prime-rl" else "tinker_cookbook.renderers")
    folder, tokenizer = family_tokenizer(tmp_path, name, real_data)
    rows = [
        (chat, apply(convert_with("messages", gives=Sample), {"messages": messages, "tools": tools}))
        for chat, (messages, tools) in CHATS.items()
    ]
    found = diagnose(Ours.open(str(folder), template), tokenizer, trainer, rows, renderer=renderer)
    assert found.how.startswith("its own code") and found.equal == equal
    assert {reason: count for (_, reason), count in found.reasons.items()} == reasons
    assert found.compared + sum(found.stopped.values()) + sum(found.refused.values()) == len(rows)
