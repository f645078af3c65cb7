"""`encoder:gpt-oss`: Harmony, the format of gpt-oss, by OpenAI's own package."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from prep_assets.caches import bounded_cache
from prep_assets.extensions.encoders import tinker
from prep_assets.extensions.encoders.formats import Format, Interval, Messages, Options
from prep_assets.text.environment import FROZEN_CLOCK

_TOKENS = ("<|return|>", "<|end|>", "<|call|>", "<|start|>", "<|channel|>", "<|message|>")
_VOCABULARY, _FOLDER, _RANKS = "o200k_base.tiktoken", "TIKTOKEN_ENCODINGS_BASE", 199_998


@cache
def _encoding() -> Any:
    """Harmony's encoding. It would download its vocabulary; tml-renderers brings the same tokens, whose file Harmony compares with its own sha256."""
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding
    from tml_renderers.tokenizers import HarmonyTokenizer

    if _FOLDER in os.environ:
        return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    token_bytes = HarmonyTokenizer().decode_bytes
    with tempfile.TemporaryDirectory() as folder:
        lines = (base64.b64encode(token_bytes([rank])) + b" %d\n" % rank for rank in range(_RANKS))
        (Path(folder) / _VOCABULARY).write_bytes(b"".join(lines))
        os.environ[_FOLDER] = folder
        try:
            return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
        finally:
            del os.environ[_FOLDER]


def _write(messages: Messages, tools: Sequence[Any], options: Options, prompted: bool) -> str:
    from openai_harmony import Conversation, RenderConversationConfig, Role

    # a model is given the reasoning of the round that it is in; Harmony itself drops what stands before the first answer only
    asked = max((number for number, message in enumerate(messages) if message["role"] == "user"), default=0)
    if prompted and messages and messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls"):
        asked = len(messages)
    shown = [*({**message, "reasoning_content": None} for message in messages[:asked]), *messages[asked:]]
    conversation = Conversation.from_messages(list(_conversation(shown, tools, options)))
    config, encoding = RenderConversationConfig(auto_drop_analysis=False), _encoding()
    if prompted:
        ids = encoding.render_conversation_for_completion(conversation, Role.ASSISTANT, config)
    else:
        ids = encoding.render_conversation_for_training(conversation, config)
    text: str = encoding.decode_utf8(ids)
    return text


def _conversation(messages: Messages, tools: Sequence[Any], options: Options) -> Iterator[Any]:
    """A chat as Harmony's messages: the preamble, system prompt and tools as the developer's, reasoning and calls in channels of their own."""
    from openai_harmony import Author, DeveloperContent, Message, ReasoningEffort, Role, SystemContent, ToolDescription

    date = options.get("conversation_start_date", FROZEN_CLOCK.date())
    effort = ReasoningEffort[options.get("reasoning_effort", "medium").upper()]
    preamble = SystemContent.new().with_reasoning_effort(effort).with_conversation_start_date(str(date))
    yield Message.from_role_and_content(Role.SYSTEM, preamble)
    instructed = bool(messages) and messages[0]["role"] in ("system", "developer")
    instructions = messages[0]["content"] if instructed else ""
    if instructions or tools:
        developer = DeveloperContent.new()
        if instructions:
            developer = developer.with_instructions(instructions)
        if tools:
            functions = [tool["function"] for tool in tools]
            developer = developer.with_function_tools(
                [ToolDescription.new(each["name"], each.get("description", ""), each.get("parameters") or {}) for each in functions]
            )
        yield Message.from_role_and_content(Role.DEVELOPER, developer)
    called = dict[str, str]()
    for message in messages[int(instructed) :]:
        role, content = message["role"], message.get("content") or ""
        if role == "user":
            yield Message.from_role_and_content(Role.USER, content)
        elif role == "assistant":
            yield from _answer(message, content)
            called |= {call.get("id") or "": call["function"]["name"] for call in message.get("tool_calls", ())}
        elif role == "tool":
            name = called.get(message.get("tool_call_id") or "") or message.get("name") or ""
            if not name:
                raise ValueError("the result of a tool names neither its call nor its tool")
            told = Message.from_author_and_content(Author.new(Role.TOOL, f"functions.{name}"), json.dumps(content, ensure_ascii=False))
            yield told.with_recipient("assistant").with_channel("commentary")
        else:
            raise ValueError(f"Harmony has no place for the role {role!r} there: a system prompt comes first")


def _answer(message: Mapping[str, Any], content: str) -> Iterator[Any]:
    from openai_harmony import Message, Role

    def said(text: str, channel: str) -> Any:
        return Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)

    calls = message.get("tool_calls", ())
    if thought := message.get("reasoning_content"):
        yield said(thought, "analysis")
    if content or not calls:
        yield said(content, "commentary" if calls else "final")
    for call in calls:
        arguments = call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        yield said(text, "commentary").with_recipient(f"functions.{call['function']['name']}").with_content_type("json")


@bounded_cache("second renderers of gpt-oss", 8)
def _second(effort: Literal["low", "medium", "high"], date: str) -> Any:
    from tml_renderers.renderers import GptOss

    return GptOss(effort, date)


def _renderer(options: Options) -> Any:
    # what the first renderer takes where nothing is said is found once more, so that the two can differ
    return _second(options.get("reasoning_effort") or "medium", str(options.get("conversation_start_date") or FROZEN_CLOCK.date()))


def _again(messages: Messages, tools: Sequence[Any], options: Options, prompted: bool) -> str:
    text = tinker.written(_renderer(options), messages, tools, prompted, ("<|start|>assistant",))
    if (blank := _blank(messages, tools, text)) is None:
        return text
    return text[:blank] + text[blank + len(_BLANK) :]


def _mark(messages: Messages, tools: Sequence[Any], options: Options, prompted: bool) -> tuple[str, tuple[Interval, ...]] | None:
    found = None if prompted else tinker.marked(_renderer(options), messages, tools)
    if found is None or (blank := _blank(messages, tools, found[0])) is None:
        return found
    text, moved = found[0], len(_BLANK)
    return text[:blank] + text[blank + moved :], tuple((start - moved, end - moved) for start, end in found[1])


_BLANK = "\n\n"


def _blank(messages: Messages, tools: Sequence[Any], text: str) -> int | None:
    """Where tml-renderers, as the model's Jinja template does, writes an empty line behind a system prompt without tools. Harmony, by which servers write
    prompts, has none there; it is the only difference that is known, and nothing else is forgiven."""
    if tools or not messages or messages[0]["role"] != "system":
        return None
    shown = f"<|start|>developer<|message|># Instructions\n\n{messages[0]['content']}"
    at = text.find(shown)
    return at + len(shown) if at >= 0 and text.startswith(f"{_BLANK}<|end|>", at + len(shown)) else None


FORMAT = Format(
    "gpt-oss",
    _TOKENS,
    {"reasoning_effort": ("low", "medium", "high"), "conversation_start_date": ()},
    ("openai_harmony", "tml_renderers"),
    _write,
    _again,
    _mark,
    ("a second implementation, tml-renderers", "the loss weights of tml-renderers"),
)
