"""Chats by `tml-renderers`, the second implementation of both formats. It brings its tokenizers, and needs no download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prep_assets.extensions.encoders.formats import Interval, Messages, intervals


def written(renderer: Any, messages: Messages, tools: Sequence[Any], prompted: bool, prompts: Sequence[str]) -> str:
    """The text of a chat.

    Args:
        prompts: the generation prompts of the format: a chat that ends with a question is asked for with one, which is cut off again.
    """
    listed = _listed(messages, tools)
    if not prompted and messages and messages[-1]["role"] == "assistant":
        return intervals(renderer.tokenizer.decode, *_tokens(_examples(renderer, listed)[-1]))[0]
    text: str = renderer.tokenizer.decode([token for span in renderer.render_for_completion(listed)[0] for token in span.span.tokens])
    return text if prompted else next((text.removesuffix(prompt) for prompt in prompts if text.endswith(prompt)), text)


def marked(renderer: Any, messages: Messages, tools: Sequence[Any]) -> tuple[str, tuple[Interval, ...]] | None:
    """The text of a chat that ends with an answer, and what of it has a loss weight; `None` where it is made into an example for each answer, whose history
    is written otherwise."""
    if not messages or messages[-1]["role"] != "assistant" or len(examples := _examples(renderer, _listed(messages, tools))) != 1:
        return None
    return intervals(renderer.tokenizer.decode, *_tokens(examples[0]))


def _examples(renderer: Any, listed: Sequence[Any]) -> Sequence[Any]:
    found: Sequence[Any] = renderer.render_for_sft(listed)
    if not found:
        raise ValueError("tml-renderers makes no example of a chat without an answer")
    return found


def _tokens(example: Any) -> tuple[list[int], list[float]]:
    return [token for span in example.input_token_spans for token in span.span.tokens], list(example.per_token_loss_weight_unshifted)


def _listed(messages: Messages, tools: Sequence[Any]) -> list[Any]:
    """The messages as the package's own, of which it joins no two; the tools are a message of the system, behind the system prompt."""
    from tml_renderers import chat

    listed = list(chat.OpenAIMessage.from_oss_messages(list(map(_message, messages))))
    if tools:
        at = int(bool(messages) and messages[0]["role"] == "system")
        declared = chat.ToolDeclareJson(list(map(_tool, tools)))
        listed.insert(at, chat.OpenAIMessage(author=chat.Author(chat.AuthorKind.System), content=[declared]))
    return listed


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message with its reasoning as a part of its content."""
    rest = {key: value for key, value in message.items() if key != "reasoning_content"}
    if thought := message.get("reasoning_content"):
        said = [{"type": "text", "text": message["content"]}] if message.get("content") else []
        rest["content"] = [{"type": "thinking", "thinking": thought}, *said]
    return rest


def _tool(tool: Mapping[str, Any]) -> Any:
    from tml_renderers import chat

    function = tool["function"]
    described = {"name": function["name"], "description": function.get("description", ""), "parameters": function.get("parameters") or {}}
    return chat.ToolSpecJson(type_name="function", **described)
