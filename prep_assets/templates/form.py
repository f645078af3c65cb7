"""The form of messages that a chat template reads, found by rendering probes: under which key reasoning stands, whether arguments are a mapping
or text, whether content is text or a list of parts.

Template authors agree on roles and on little else. What a message must look like is not written down anywhere but in the template itself, so
each candidate is rendered, and the first whose words appear is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from prep_assets.errors import Refused

Message = Mapping[str, Any]
Render = Callable[..., str]
Shown = Literal["ignored", "shown", "required"]
Empty = Literal["text", "null", "absent"]

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning", "thought")
"""Keys under which published templates read reasoning, the most common first."""

_WORDS = {name: f"zq{name}" for name in ("question", "answer", "thought", "tool", "about", "value", "result", "speaker", "document")}
_LISTED = re.compile(r"""["']type["']: ["'](text|image)""", re.IGNORECASE)  # a list of parts, written out as JSON or as Python writes it
_ID = "zqcall123"  # nine letters and digits, as Mistral's templates demand


@dataclass(frozen=True, slots=True)
class MessageForm:
    """What the messages of one template must look like, and what of them it shows.

    Attributes:
        reasoning: the key of an assistant's reasoning; ``reasoning_content`` where the template shows none.
        shows_reasoning: whether reasoning appears in the last answer.
        content: ``text``, or ``parts``: a list of ``{"type": "text", "text": …}``.
        image_parts: whether it writes something for a part ``{"type": "image"}``, so that images need no placeholder in the text.
        arguments: ``mapping``, or ``text``: JSON that the template puts in as it is.
        shows_calls: whether tool calls appear.
        no_content: what ``content`` is beside tool calls without text: empty text, null, or left out.
        call_ids: ids of tool calls and of their results.
        result_names: names of the tools in their results.
        names: names of speakers.
        shows_tools: whether schemas of tools appear in a chat that calls none.
        shows_documents: whether the documents of a conversation appear.
    """

    reasoning: str = REASONING_KEYS[0]
    shows_reasoning: bool = False
    content: Literal["text", "parts"] = "text"
    image_parts: bool = False
    arguments: Literal["mapping", "text"] = "mapping"
    shows_calls: bool = False
    no_content: Empty = "text"
    call_ids: Shown = "ignored"
    result_names: Shown = "ignored"
    names: Shown = "ignored"
    shows_tools: bool = False
    shows_documents: bool = False


def find_form(render: Render, image_token: str = "") -> MessageForm:
    """Probe a template.

    Args:
        render: takes messages, `tools`, `documents` and `generation_prompt`, and raises `Refused` as `ChatTemplate.render`.
        image_token: what a template must write for an image; any text where it is empty.
    """
    return _Prober(render, image_token).form()


@dataclass(frozen=True, slots=True)
class _Prober:
    render: Render
    image_token: str

    def form(self) -> MessageForm:
        parts = not self._shows("answer", [_user(False), _answer(False)]) and self._shows_parts()
        reasoning = next((key for key in REASONING_KEYS if self._shows_reasoning(key, parts)), None)
        arguments, no_content = next(self._calls(parts), (None, None))
        form = MessageForm(
            reasoning=reasoning or REASONING_KEYS[0],
            shows_reasoning=reasoning is not None,
            content="parts" if parts else "text",
            image_parts=self._writes_images(),
            arguments=arguments or "mapping",
            shows_calls=arguments is not None,
            no_content=no_content or "text",
            names=self._shown("speaker", [{**_user(parts), "name": _WORDS["speaker"]}, _answer(parts)], [_user(parts), _answer(parts)]),
            shows_tools=all(self._shows(word, [_user(parts), _answer(parts)], tools=[_tool()]) for word in ("tool", "about")),
            shows_documents=self._shows("document", [_user(parts), _answer(parts)], documents=[_document()]),
        )
        return form if arguments is None or no_content is None else self._with_results(form, parts, arguments, no_content)

    def _shows_parts(self) -> bool:
        text = self._text([_user(True), _answer(True)]) or ""
        return _WORDS["answer"] in text and not _LISTED.search(text)

    def _shows_reasoning(self, key: str, parts: bool) -> bool:
        return self._shows("thought", [_user(parts), {**_answer(parts), key: _WORDS["thought"]}])

    def _calls(self, parts: bool) -> Iterator[tuple[Literal["mapping", "text"], Empty]]:
        """The ways to write a tool call that the template shows as JSON or in a notation of its own, and not as Python writes a mapping."""
        forms: tuple[Literal["mapping", "text"], ...] = ("mapping", "text")
        empties: tuple[Empty, ...] = ("text", "null", "absent")
        for arguments in forms:
            for empty in empties:
                for ids in (False, True):
                    text = self._text([_user(parts), _call(arguments, empty, ids)], tools=[_tool()])
                    if text is not None and _WORDS["tool"] in _without_tools(text) and _WORDS["value"] in text and "{'zqkey'" not in text:
                        yield arguments, empty

    def _with_results(self, form: MessageForm, parts: bool, arguments: Literal["mapping", "text"], empty: Empty) -> MessageForm:
        def chat(*, ids: bool, names: bool) -> list[Message]:
            return [_user(parts), _call(arguments, empty, ids), _result(parts, ids, names), _answer(parts)]

        bare, named, numbered = chat(ids=False, names=False), chat(ids=False, names=True), chat(ids=True, names=False)
        both = chat(ids=True, names=True)
        tools = [_tool()]
        needs_ids = self._text(named, tools=tools) is None and self._text(both, tools=tools) is not None
        needs_names = self._text(numbered, tools=tools) is None and self._text(both, tools=tools) is not None
        text = self._text(both, tools=tools) or self._text(named, tools=tools) or self._text(numbered, tools=tools) or ""
        plain = self._text(numbered, tools=tools) or self._text(bare, tools=tools) or text
        return replace(
            form,
            call_ids="required" if needs_ids else "shown" if _ID in text else "ignored",
            result_names="required" if needs_names else "shown" if text.count(_WORDS["tool"]) > plain.count(_WORDS["tool"]) else "ignored",
        )

    def _writes_images(self) -> bool:
        """Whether an image among the parts changes what is rendered, and not because the list is written out as JSON or as Python."""
        words = self._text([_user(True)])
        pictured = self._text([{"role": "user", "content": [{"type": "image"}, *_parts("question")]}])
        if words is None or pictured is None or _WORDS["question"] not in pictured:
            return False
        return len(pictured) > len(words) and self.image_token in pictured and not _LISTED.search(pictured)

    def _shown(self, word: str, given: Sequence[Message], bare: Sequence[Message]) -> Shown:
        shown = self._shows(word, given)
        return "required" if shown and self._text(bare) is None else "shown" if shown else "ignored"

    def _shows(self, word: str, messages: Sequence[Message], **more: Any) -> bool:
        return _WORDS[word] in (self._text(messages, **more) or "")

    def _text(self, messages: Sequence[Message], **more: Any) -> str | None:
        try:
            return self.render(messages, **more)
        except Refused:
            return None


def _parts(word: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": _WORDS[word]}]


def _user(parts: bool) -> dict[str, Any]:
    return {"role": "user", "content": _parts("question") if parts else _WORDS["question"]}


def _answer(parts: bool) -> dict[str, Any]:
    return {"role": "assistant", "content": _parts("answer") if parts else _WORDS["answer"]}


def _call(arguments: Literal["mapping", "text"], empty: Empty, ids: bool) -> dict[str, Any]:
    given: Any = {"zqkey": _WORDS["value"]} if arguments == "mapping" else f'{{"zqkey": "{_WORDS["value"]}"}}'
    call = {"type": "function", "function": {"name": _WORDS["tool"], "arguments": given}, **({"id": _ID} if ids else {})}
    content: dict[str, Any] = {} if empty == "absent" else {"content": "" if empty == "text" else None}
    return {"role": "assistant", **content, "tool_calls": [call]}


def _result(parts: bool, ids: bool, names: bool) -> dict[str, Any]:
    content = _parts("result") if parts else _WORDS["result"]
    return {"role": "tool", "content": content, **({"tool_call_id": _ID} if ids else {}), **({"name": _WORDS["tool"]} if names else {})}


def _tool() -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"zqkey": {"type": "string", "description": "A key."}}, "required": ["zqkey"]}
    return {"type": "function", "function": {"name": _WORDS["tool"], "description": _WORDS["about"], "parameters": parameters}}


def _document() -> dict[str, Any]:
    return {"title": _WORDS["document"], "text": _WORDS["document"], "content": _WORDS["document"]}


def _without_tools(text: str) -> str:
    """What stands after the last schema of a tool, or all of it where none is shown."""
    return text.rpartition(_WORDS["about"])[2]
