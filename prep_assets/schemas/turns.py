"""Building blocks of schemas: roles, messages, tool calls, images, common columns, pairs."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any, TypedDict

from msgspec import Struct, field

from prep_assets.caches import bounded_cache
from prep_assets.errors import Refused, nearest
from prep_assets.samples import (
    ASSISTANT,
    AUDIO,
    COMPLETION,
    IMAGE,
    MEDIA,
    PROMPT,
    SEPARATOR,
    SYSTEM,
    TEXT,
    THINKING,
    TOOL,
    TOOL_CALL,
    USER,
    VIDEO,
    Pair,
    Region,
    Row,
    Sample,
    Spelled,
    Turn,
    changed,
    turn,
)
from prep_assets.schemas.fields import (
    CALLS,
    DOCUMENTS,
    LABELS,
    NEUTRAL,
    REASONING,
    STRETCHES,
    SYSTEM_PROMPT,
    TEMPLATE_OPTIONS,
    TOOLS,
    View,
    as_integer,
    as_list,
    as_mapping,
    as_number,
    as_text,
    as_weight,
    has_content,
    inside,
    loss_weight_of,
    needed,
    objects,
    text_of,
    value_at,
    whole,
    wrong_type,
)
from prep_assets.stores.files import loads

# Role tags of data sets → roles.

OPENAI_ROLES: Mapping[str, str] = {
    "system": SYSTEM,
    "developer": SYSTEM,
    "user": USER,
    "assistant": ASSISTANT,
    "tool": TOOL,
    "function": TOOL,
}
CALL_TAGS = ("tool_call", "function_call")
"""Tags of messages whose content is the JSON of one tool call, or of several (ms-swift, ShareGPT)."""
RESULT_TAGS = ("tool_response", "observation")
"""Further tags of a tool's result (ms-swift, GLM and ShareGPT)."""
AGENT_ROLES: Mapping[str, str] = {**dict.fromkeys(CALL_TAGS, ASSISTANT), **dict.fromkeys(RESULT_TAGS, TOOL)}
MESSAGE_ROLES: Mapping[str, str] = {**OPENAI_ROLES, **AGENT_ROLES}


def role_at(message: Row, key: str, roles: Mapping[str, str], where: str, remedy: str = "") -> str:
    """The role of the tag under `key`. A tag that `roles` does not list is rejected: a guess could train the wrong side."""
    tag = text_of(message, key, where)
    if tag not in roles:
        raise Refused("unknown_role", f"{where} has {key} {tag!r}; known tags: {', '.join(roles)}{remedy and f'. {remedy}'}")
    return roles[tag]


def require_answer(turns: Sequence[Turn]) -> None:
    """Reject a chat without an assistant turn (``no_assistant_turn``)."""
    if not any(turn.role == ASSISTANT for turn in turns):
        raise Refused("no_assistant_turn", f"the roles are {_roles(turns)}")


def require_alternation(turns: Sequence[Turn], *, ends_with_answer: bool) -> None:
    """Reject (``role_order``) anything but: at most one system turn, then user turns or the results of tools alternating with assistant turns."""
    body = turns[1:] if turns and turns[0].role == SYSTEM else turns
    body = [turn for at, turn in enumerate(body) if turn.role != TOOL or not at or body[at - 1].role != TOOL]
    for position, turn in enumerate(body):
        if (turn.role == ASSISTANT) != (position % 2 == 1) or turn.role == SYSTEM:
            raise Refused("role_order", f"turn {position} after the system turn is {turn.role}; the roles are {_roles(turns)}")
    if bool(body) and (body[-1].role == ASSISTANT) != ends_with_answer:
        detail = f"the last turn must {'' if ends_with_answer else 'not '}be the assistant's; the roles are {_roles(turns)}"
        raise Refused("role_order", detail)


def require_open_end(turns: Sequence[Turn], where: str) -> None:
    """Reject a prompt that is empty (``empty_prompt``) or ends with an assistant or system turn (``role_order``)."""
    if not turns:
        raise Refused("empty_prompt", f"{where!r} has no turns")
    if turns[-1].role in (ASSISTANT, SYSTEM):
        detail = f"{where!r} ends with the {turns[-1].role} turn; nothing is left to answer. The roles are {_roles(turns)}"
        raise Refused("role_order", detail)


def _roles(turns: Sequence[Turn]) -> str:
    return " ".join(turn.role for turn in turns) or "none"


# Tool calls and tool descriptions, in all shapes that data sets use.
#
# A call becomes the text ``{"name":…,"arguments":{…}}``, with its ``"id"`` at the end where it has one: compact JSON, non-ASCII characters unescaped.

ARGUMENTS = ("arguments", "parameters", "input")
"""The field with the arguments of a call: OpenAI, Llama 3, Anthropic."""
MOST_SHARED = 1 << 14
"""Most characters of JSON tools that are cached for later rows with the same text."""
CALL_TYPES = ("function", "tool_call", "tool_use", "function_call")


def call_text(call: Row, where: str) -> str:
    """The text of one call, flat (``{"name", "arguments"}``) or nested as by OpenAI (``{"function": {"name", "arguments"}}``).

    Arguments are under one of `ARGUMENTS`, as an object or its JSON text; none at all become ``{}``. Anything else is rejected as
    ``bad_tool_call``.
    """
    function = as_mapping(call["function"], f"{where}.function") if call.get("function") is not None else call
    name, identity = text_of(function, "name", where), call.get("id")
    if (kind := call.get("type")) is not None and kind not in CALL_TYPES:
        raise Refused("bad_tool_call", f"{where} is of type {kind!r}; known: {', '.join(CALL_TYPES)}")
    candidates = {key: whole(function[key]) for key in ARGUMENTS if function.get(key) is not None}
    if sum(map(has_content, candidates.values())) > 1:
        raise Refused("bad_tool_call", f"{where} has arguments under {' and '.join(candidates)}")
    arguments = next((value for value in candidates.values() if has_content(value)), None)
    if isinstance(arguments, str):
        arguments = _parse_json(arguments, "bad_tool_call", f"{where}.arguments") if arguments.strip() else {}
    if not name.strip() or not isinstance(arguments, Mapping | None):
        raise Refused("bad_tool_call", f"{where} needs a name and an object of arguments; they are {name!r} and {arguments!r}")
    normalized = {"name": name, "arguments": arguments or {}, **({} if identity is None else {"id": as_text(identity, f"{where}.id")})}
    return require_json(normalized, "bad_tool_call", f"{where}.arguments")


_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_spaced = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def require_json(value: object, reason: str, where: str, written: Callable[[object], str] = _compact) -> str:
    """`value` as JSON, compact unless it is `written` otherwise; rejected with `reason` if JSON cannot express it, such as NaN or a date of a Parquet file."""
    try:
        return written(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(reason, f"{where} cannot be written as JSON: {error}") from error


def call_texts(value: object, where: str) -> list[str]:
    """The texts of one call or of an array of calls, from JSON text or JSON values."""
    parsed = _parse_json(value, "bad_tool_call", where) if isinstance(value, str) else value
    calls = list(objects([parsed] if isinstance(parsed, Mapping) else parsed, where))
    if isinstance(value, str) and (foreign := [key for _, call in calls for key in _beside_call(call)]):
        raise Refused("bad_tool_call", f"{where!r} has {foreign[0]!r}, which is no part of a call")
    texts = [call_text(call, place) for place, call in calls]
    if not texts:
        raise Refused("bad_tool_call", f"{where!r} has no call")
    return texts


def _beside_call(call: Row) -> list[str]:
    """The fields of a parsed call that would be lost: no view counts what is read of JSON text."""
    function = call["function"] if isinstance(call.get("function"), Mapping) else call
    known = ("name", "id", "type", "function", *ARGUMENTS)
    return [key for key in {**call, **function} if key not in known and key.lower() not in NEUTRAL]


def tools_at(row: Row, key: str | None) -> tuple[Mapping[str, Any], ...]:
    """The tools under `key`: an array of JSON schemas, one schema, or the JSON text of either. Absent, null and ``""`` are no tools.

    A schema without the ``{"type": "function", "function": …}`` wrapper gets it, since chat templates expect it.
    """
    value = None if key is None else whole(row.get(key))
    if not isinstance(value, str):
        return _wrapped_tools(value, str(key))
    return (_parse_tools_cached if len(value) <= MOST_SHARED else _parse_tools)(value, str(key))


def _parse_tools(text: str, where: str) -> tuple[Mapping[str, Any], ...]:
    """The tools of a JSON text. Rows with the same text share them, so they must not be changed."""
    tools = _wrapped(_parse_json(text, "bad_tools", where) if text.strip() else None, where)
    return tuple([Spelled(tool, require_json(tool, "bad_tools", where, _spaced)) for tool in tools])


_parse_tools_cached = bounded_cache("tools", 256)(_parse_tools)


def _wrapped_tools(value: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if has_content(value):
        require_json(value, "bad_tools", where)
    return _wrapped(value, where)


def _wrapped(value: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if not has_content(value):
        return ()
    tools = []
    for place, tool in objects([value] if isinstance(value, Mapping) else value, where):
        is_wrapped = "function" in tool or "name" not in tool
        if is_wrapped and not isinstance(tool.get("function"), Mapping) and "type" not in tool:
            fields = ", ".join(map(repr, tool)) or "no fields"
            raise Refused("bad_tools", f"{place} is not a tool: it has {fields}, needs 'name' or 'function'")
        tools.append(tool if is_wrapped else {"type": "function", "function": dict(tool)})
    return tuple(tools)


def _parse_json(text: str, reason: str, where: str) -> Any:
    try:
        return loads(text)
    except ValueError as error:
        raise Refused(reason, f"{where!r} is not JSON: {error}; it begins {text[:60]!r}") from error


# The columns ``images``, ``audios`` and ``videos`` of a row, and the marks in its text where the files stand. Only paths: no file is opened.


class Images:
    """The images, audio and video of one row, taken in the order of their marks.

    In a row without the column, its token is plain text (a page about HTML may well contain ``<image>``). Where `key` is ``images`` and the row
    has only ``image``, as many data sets with one image a row do, that column is read; so it is with `audios` and `videos`, whose tokens are
    ``<audio>`` and ``<video>``.
    """

    __slots__ = ("_columns", "_keys", "_taken")

    def __init__(self, row: Row, key: str, token: str, audios: str = "audios", videos: str = "videos") -> None:
        self._columns: dict[str, tuple[str, str, list[Region]]] = {}  # kind → column, token, files
        self._keys, self._taken = {IMAGE: key, AUDIO: audios, VIDEO: videos}, {kind: list[int]() for kind in MEDIA}
        for kind, name in self._keys.items():
            mark = token if kind == IMAGE else f"<{kind}>"
            column = row.get(name)
            if name == f"{kind}s" and column is None and row.get(kind) is not None:
                name, column = kind, row[kind] if has_content(row[kind]) else []
            if column is not None:
                self._columns[kind] = name, mark, files_of(column, name, kind)

    def __bool__(self) -> bool:
        """Whether the row has one of the columns."""
        return bool(self._columns)

    def split(self, text: str, weight: float | None) -> list[Region]:
        """`text` as regions of text and files. Each mark takes the next file of its kind."""
        regions = [Region(TEXT, text, weight)] if text else []
        for kind, (_, mark, _) in self._columns.items():
            if mark in text:
                regions = [part for region in regions for part in (self._placed(region, kind, mark) if region.kind == TEXT else [region])]
        return regions

    def _placed(self, region: Region, kind: str, mark: str) -> list[Region]:
        placed: list[Region] = []
        for number, piece in enumerate(region.text.split(mark)):
            if number:
                placed.append(changed(self.take(kind), loss_weight=region.loss_weight))
            if piece:
                placed.append(changed(region, text=piece))
        return placed

    def take(self, kind: str = IMAGE, index: int | None = None) -> Region:
        """The file of a kind at `index` of its column, the next one without."""
        name, _, files = self._columns.get(kind, (self._keys[kind], "", []))
        taken = self._taken[kind]
        index = len(taken) if index is None else index
        if not 0 <= index < len(files):
            raise Refused(f"{kind}_count", f"the text places {kind} {index} of the {len(files)} of {name!r}, counted from 0")
        taken.append(index)
        return files[index]

    def require_all_taken(self) -> None:
        """Reject (``image_count``, ``audio_count``, ``video_count``) a row with a file that the text does not place."""
        for kind, (name, mark, files) in self._columns.items():
            if placed := {*range(len(files))} - {*self._taken[kind]}:
                detail = f"{name!r} has {len(files)} {kind}s, the text places {len(files) - len(placed)} with {mark!r}"
                raise Refused(f"{kind}_count", detail)


EMBEDDED = "data:;base64,"
"""Begins the text of an image that its row holds."""


def image_of(value: object, where: str, part: Mapping[str, Any] | None = None, kind: str = IMAGE) -> Region:
    """The region of one image, audio or video: its path or URL, from a string or an object with ``path`` or ``url`` (Hugging Face, OpenAI), or of an image that
    the row holds as ``bytes`` a data URL; and its ``width``
    and ``height`` in pixels, or its ``duration`` in seconds, where the object or, for a string, its content `part` has them.

    Raises:
        Refused: ``missing_image``, ``missing_audio``, ``missing_video``; ``embedded_audio``, ``embedded_video``, where the row holds the file itself;
            ``image_resized``, ``video_resized``, where the row asks for another resolution
            than that of the picture, or for other frames.
    """
    attributes = value if isinstance(value, Mapping) else part or {}
    content = value.get("bytes") if isinstance(value, Mapping) else None
    if isinstance(value, Mapping) and isinstance(content, bytes):
        value.get("path")  # the name that the file had
        value = EMBEDDED + b64encode(content).decode()
    elif isinstance(value, Mapping):
        key = "path" if value.get("path") is not None else "url"
        value = value_at(value, key, where)
        if has_content(content):
            wrong_type(content, f"{where}.bytes", "bytes, as a table holds them. Write the file below image_dir, and give its path")
    path = as_text(value, where)
    if kind != IMAGE and path.startswith("data:"):
        raise Refused(f"embedded_{kind}", f"{where!r} holds the {kind} itself. Write it to a file below image_dir, and give its path")
    if not path:
        raise Refused(f"missing_{kind}", f"{where!r} is an empty path")
    if resized := [key for key in RESIZING.get(kind, ()) if attributes.get(key) is not None]:
        detail = f"{where!r} asks for {resized[0]} {attributes[resized[0]]!r}; one rule counts the tokens of every {kind} of a store. Leave it out"
        raise Refused(f"{kind}_resized", detail)
    if kind != IMAGE:
        seconds = attributes.get("duration")
        return Region(kind, path, size=None if seconds is None else (as_number(seconds, f"{where}.duration"),))
    return Region(IMAGE, path, size=_size(attributes, where))


_SIDES = ("resized_width", "resized_height", "min_pixels", "max_pixels")
_FRAMES = ("total_pixels", "fps", "nframes", "min_frames", "max_frames", "video_start", "video_end")
RESIZING = {IMAGE: _SIDES, VIDEO: (*_SIDES, *_FRAMES)}
"""Fields with which Qwen's rows resize single images, and choose the frames of a video."""


def _size(attributes: Mapping[str, Any], where: str) -> tuple[int, int] | None:
    sizes = [attributes.get(name) for name in ("width", "height")]
    if sizes == [None, None]:
        return None
    width, height = (as_integer(size, f"{where}.{name}") for size, name in zip(sizes, ("width", "height"), strict=True))
    if min(width, height) < 1:
        raise Refused("wrong_type", f"{where!r} is {width} x {height} pixels, needs 1 or more along each side")
    return width, height


def files_of(column: object, key: str, kind: str) -> list[Region]:
    """The files of a column: one, or an array of them."""
    if isinstance(column, str | Mapping):
        return [image_of(column, key, kind=kind)]
    if isinstance(column, list | tuple):
        return [image_of(value, f"{key}[{i}]", kind=kind) for i, value in enumerate(column)]
    return wrong_type(column, key, "an array of paths")


# The regions of one message: its content, a string or an array of typed parts, and an assistant's reasoning in a separate field, in all spellings.

TEXT_PARTS = ("text", "input_text", "output_text")
THINKING_PARTS = ("reasoning", "thinking")
CALL_PARTS = ("tool_call", "tool_use")
FILE_PARTS = {name: kind for kind in MEDIA for name in (kind, f"{kind}_url")}
PARTS = (*TEXT_PARTS, *THINKING_PARTS, *CALL_PARTS, *FILE_PARTS)


def content_regions(content: object, where: str, weight: float | None, images: Images) -> list[Region]:
    """The regions of a message's content.

    A part holds its text under the name of its type, ``text`` (OpenAI) or ``value`` (LLaMA-Factory v1). A part of a file without a path
    takes the next one of the row's column (Hugging Face). The loss weight of a part overrides that of the message.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return images.split(content, weight)
    parts = objects(content, where, "a string or an array of parts")
    return [region for place, part in parts for region in _part_regions(part, place, weight, images)]


def _part_regions(part: Row, where: str, weight: float | None, images: Images) -> list[Region]:
    kind, part_weight = text_of(part, "type", where), loss_weight_of(part, where)
    weight = weight if part_weight is None else part_weight
    if kind in TEXT_PARTS:
        return images.split(as_text(_agreeing_value(part, ("text", "value"), where), where), weight)
    if kind in THINKING_PARTS:
        return [Region(THINKING, as_text(_agreeing_value(part, (kind, "text", "value"), where), where), weight)]
    if kind in CALL_PARTS:
        holders = ("value", "tool_call")
        is_call = all(part.get(key) is None for key in holders)
        texts = [call_text(part, where)] if is_call else call_texts(_agreeing_value(part, holders, where), f"{where}.value")
        return [Region(TOOL_CALL, text, weight) for text in texts]
    if (of := FILE_PARTS.get(kind)) is not None:
        keys = (f"{of}_url", of, "path", "url", "value", "source", "uri")
        if any(part.get(key) is not None for key in keys):
            file = image_of(_agreeing_value(part, keys, where), where, part, of)
        else:
            file = images.take(of, None if part.get("index") is None else as_integer(part["index"], f"{where}.index"))
        return [changed(file, loss_weight=weight)]
    raise Refused("unknown_part", f"{where} has type {kind!r}{nearest(kind, PARTS)}; known: {', '.join(PARTS)}")


def _agreeing_value(part: Row, keys: Sequence[str], where: str) -> Any:
    """The value under one of `keys`. Different values under two of them are rejected (``conflicting_content``)."""
    present = [key for key in keys if part.get(key) is not None]
    if any(part[key] != part[present[0]] for key in present):
        raise Refused("conflicting_content", f"{where} has different values under {' and '.join(present)}")
    return part[present[0]] if present else value_at(part, keys[0], where)


DETAILS = "reasoning_details"
_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary"}


def reasoning_regions(message: Row, where: str, weight: float | None) -> list[Region]:
    """The reasoning of a message, or of a row that is an answer: one region, or none.

    Rejects different texts in two spellings (``conflicting_reasoning``).
    """
    texts = {key: as_text(message[key], inside(where, key)) for key in REASONING if has_content(message.get(key))}
    if has_content(message.get(DETAILS)):
        texts[DETAILS] = _join_details(message[DETAILS], inside(where, DETAILS))
    if len(set(texts.values())) > 1:
        raise Refused("conflicting_reasoning", f"{where or 'the record'} has different texts under {', '.join(texts)}")
    return [Region(THINKING, text, weight) for text in list(texts.values())[:1]]


def _join_details(value: object, where: str) -> str:
    """The joined texts of OpenRouter's array of reasoning parts. Encrypted parts are rejected: they cannot be read."""
    texts = []
    for place, part in objects(value, where):
        kind = text_of(part, "type", place)
        if kind not in _TEXTS:
            raise Refused("unknown_part", f"{place} has type {kind!r}; known: {', '.join(_TEXTS)}")
        for key in ("format", "signature"):
            part.get(key)  # metadata of the provider, no text
        texts.append(text_of(part, _TEXTS[kind], place))
    return "".join(texts)


# Lists of messages as turns.


class ChatFormat(Struct, frozen=True):
    """The field names and role tags of a data set's messages.

    Attributes:
        role_key: field with the role tag.
        content_key: field with the content.
        roles: role tags → roles.
        call_tags: the tags of messages whose content is the JSON of tool calls.
        remedy: says which option reads an unknown tag.
    """

    role_key: str = "role"
    content_key: str = "content"
    roles: Mapping[str, str] = field(default_factory=lambda: MESSAGE_ROLES)
    call_tags: tuple[str, ...] = CALL_TAGS
    remedy: str = ""

    def turns(self, messages: object, where: str, images: Images | None = None) -> tuple[Turn, ...]:
        """One turn for each message; tool calls in messages of their own join the answer before them. Without `images`, image marks in a text are plain text.

        Rejects unknown roles and parts, an empty assistant message (``empty_answer``), an empty user message (``empty_turn``), a tool result
        without a call before it (``role_order``, ``unknown_tool_call``), and a call without its result (``unanswered_tool_call``).
        """
        images = Images({}, "images", "<image>") if images is None else images
        listed = as_list(messages, where)
        if any(kind is not dict and kind is not View for kind in {*map(type, listed)}):
            listed = [message for _, message in objects(listed, where)]
        marks, turns = images if images else None, list[Turn]()
        for at, message in enumerate(listed):
            turn = self._plain_turn(message, marks) or self._general_turn(message, f"{where}[{at}]", images)
            if turns and turns[-1].role == turn.role == ASSISTANT and message.get(self.role_key) in self.call_tags:
                turns[-1] = changed(turns[-1], regions=turns[-1].regions + turn.regions)
            else:
                turns.append(turn)
        return _with_results(turns, where)

    def _plain_turn(self, message: Row, images: Images | None) -> Turn | None:
        """The turn of a message with only a role and a text, as most are; `None` for others."""
        if len(message) != 2:
            return None
        tag, text = message.get(self.role_key), message.get(self.content_key)
        role = self.roles.get(tag) if isinstance(tag, str) and tag not in self.call_tags else None
        if role is None or not isinstance(text, str) or not text or text.isspace():
            return None
        return Turn(role, (Region(TEXT, text),) if images is None else tuple(images.split(text, None)))

    def _general_turn(self, message: Row, where: str, images: Images) -> Turn:
        role = role_at(message, self.role_key, self.roles, where, self.remedy)
        weight = loss_weight_of(message, where)
        place = f"{where}.{self.content_key}"
        content = _message_content(message, message.get(self.content_key), where)
        if role == ASSISTANT and message.get(self.role_key) in self.call_tags:
            regions = [Region(TOOL_CALL, text, weight) for text in call_texts(content, place)]
        elif stretches := [message[key] for key in STRETCHES if has_content(message.get(key))]:
            pieces = _stretches(as_text(content, place), stretches[0], f"{where}.{STRETCHES[0]}", weight)
            regions = [region for text, own_weight in pieces for region in images.split(text, own_weight)]
        else:
            regions = content_regions(content, place, weight, images)
        calls = {key: call_texts(message[key], f"{where}.{key}") for key in CALLS if has_content(message.get(key))}
        if len(calls) > 1:
            raise Refused("bad_tool_call", f"{where} has calls under {' and '.join(calls)}")
        call_regions = [Region(TOOL_CALL, text, weight) for texts in calls.values() for text in texts]
        regions = [*reasoning_regions(message, where, weight), *regions, *call_regions]
        _require_content(role, regions, place, content is None and self.content_key in message)
        name, call_id = (None if message.get(key) is None else text_of(message, key, where) for key in ("name", "tool_call_id"))
        return Turn(role, tuple(regions) or (Region(TEXT, "", weight),), name, call_id)


def chat_format(role_key: str = "role", content_key: str = "content", roles: Mapping[str, str] | None = None) -> ChatFormat:
    """The format of messages with the option `roles`. A known tag of tool calls keeps its meaning where the option calls it the assistant's."""
    return ChatFormat(role_key, content_key, {**MESSAGE_ROLES, **(roles or {})}, remedy="Say whose it is with the option roles")


def _message_content(message: Row, content: object, where: str) -> object:
    """The content, or OpenAI's ``refusal`` in its place. The beginning of an answer (Mistral's ``prefix``) is rejected."""
    if message.get("prefix"):
        raise Refused("open_prefix", f"{where} is the beginning of an answer, which a model continues; there is no answer to train")
    if not has_content(refusal := message.get("refusal")):
        return content
    if has_content(content):
        raise Refused("conflicting_content", f"{where} has both a content and a refusal")
    return as_text(refusal, f"{where}.refusal")


def _require_content(role: str, regions: Sequence[Region], where: str, null: bool) -> None:
    """Check that an answer is more than reasoning, that a user turn has text, and that only an assistant reasons or calls tools."""
    if role == ASSISTANT:
        if not any(region.kind != THINKING and region.text.strip() for region in regions):
            what = "is null, and there is no tool call" if null else "has no text and no tool call"
            raise Refused("empty_answer", f"{where!r} {what}")
    elif foreign := [region.kind for region in regions if region.kind in (THINKING, TOOL_CALL)]:
        raise Refused("role_content", f"{where!r}: a {role} turn cannot have {foreign[0]}")
    elif role == USER and not any(region.text.strip() for region in regions):
        raise Refused("empty_turn", f"{where!r} of the user is {'null' if null else 'empty'}")


def _stretches(text: str, value: object, where: str, weight: float | None) -> list[tuple[str, float]]:
    """Pieces of `text` with their weights, as axolotl's ``train_detail`` gives them: from ``begin_offset`` to ``end_offset``, both within; what no entry
    names is not trained. White space at the end of a piece goes to the next one, as the token of a word has the space before it."""
    trained = 1.0 if weight is None else weight
    entries = []
    for place, entry in objects(value, where):
        begin, end = (as_integer(value_at(entry, key, place), f"{place}.{key}") for key in ("begin_offset", "end_offset"))
        entries.append((begin, end, value_at(entry, "train", place)))
    pieces, at = list[tuple[str, float]](), 0
    for begin, end, train in sorted(entries, key=itemgetter(0)):
        if not at <= begin < min(end + 1, len(text)):
            detail = f"{where!r} has a stretch from {begin} to {end}, after one up to {at - 1}, in a text of {len(text)} characters"
            raise Refused("bad_weight", detail)
        train = train if isinstance(train, bool) else wrong_type(train, where, "true or false")
        pieces += [(text[at:begin], 0.0), (text[begin : end + 1], trained * train)]
        at = min(end + 1, len(text))
    joined, space = list[tuple[str, float]](), ""
    for own_weight, run in groupby([*pieces, (text[at:], 0.0)], key=itemgetter(1)):
        piece = space + "".join(words for words, _ in run)
        words, space = piece.rstrip(), piece[len(piece.rstrip()) :]
        joined += [(words, own_weight)] if words else []
    return [*joined[:-1], (joined[-1][0] + space, joined[-1][1])] if joined else [(text, 0.0)]


# Calls and their results.

_TYPED = re.compile(r"[<\[][^<>\[\]\n]{0,24}(tool|function|python|call|invoke)|```|^ *Action:", re.IGNORECASE | re.MULTILINE)
"""What a call looks like that is typed in the text of an answer, in the notation of a template, as code or as ReAct writes it."""


def _with_results(turns: Sequence[Turn], where: str) -> tuple[Turn, ...]:
    """`turns` with the results of parallel calls in the order of the calls, where both have ids: most templates write no id, so a model pairs them by
    position. An answer before a result that is the JSON of calls and nothing else is read as calls.

    Raises:
        Refused: ``role_order``, where a result follows no call; ``unknown_tool_call``, for a result of a call that was never made, or more results than calls;
            ``unanswered_tool_call``, for a call before the last turn without a result.
    """
    if not any(turn.role == TOOL or any(region.kind == TOOL_CALL for region in turn.regions) for turn in turns):
        return tuple(turns)
    ordered: list[Turn] = []
    made: list[str] = []
    open_calls: dict[str, int] = {}
    for is_result, run in groupby(enumerate(turns), lambda numbered: numbered[1].role == TOOL):
        numbered = list(run)
        if is_result:
            if not ordered or ordered[-1].role != ASSISTANT:
                detail = f"turn {numbered[0][0]} is a tool result that answers no assistant turn; the roles are {_roles(turns)}"
                raise Refused("role_order", detail)
            ordered[-1] = _as_calls(ordered[-1], f"{where}[{numbered[0][0]}]")
            results = _in_order(numbered, ordered[-1], made, where)
            for result in results:
                open_calls.pop(str(result.tool_call_id), None)
            if any(result.tool_call_id is None for result in results):
                open_calls.clear()
            ordered += results
            continue
        for number, turn in numbered:
            ids = _call_ids(turn)
            if ordered and ordered[-1].role == ASSISTANT and turn.role == ASSISTANT and None in _call_ids(ordered[-1]) and not ids:
                raise Refused("unanswered_tool_call", f"{where}[{number}] follows a call without its result")
            if open_calls and not ids:
                call_id, at = next(iter(open_calls.items()))
                detail = f"{where} has no result of call {call_id!r}, made in turn {at}, before message {number}"
                raise Refused("unanswered_tool_call", detail)
            open_calls.update({call_id: number for call_id in ids if call_id is not None})
            made += [call_id for call_id in ids if call_id is not None]
            ordered.append(turn)
    return tuple(ordered)


def _as_calls(turn: Turn, where: str) -> Turn:
    """`turn`, which results follow, with its calls as regions."""
    if any(region.kind == TOOL_CALL for region in turn.regions):
        return turn
    texts = [region for region in turn.regions if region.kind == TEXT]
    if len(texts) == 1 and texts[0].text.lstrip()[:1] in ("{", "["):
        try:
            calls = tuple(Region(TOOL_CALL, text, texts[0].loss_weight) for text in call_texts(texts[0].text, where))
            return changed(turn, regions=(*(region for region in turn.regions if region.kind != TEXT), *calls))
        except Refused:
            pass  # some other JSON
    if not any(_TYPED.search(region.text) for region in texts):
        detail = f"{where} is the result of a tool behind an answer without a call: {turn.text[:60]!r}. Write calls as `tool_calls` or in a message "
        raise Refused("role_order", f"{detail}with role {CALL_TAGS[0]!r}; where nothing is called, give results the role of the user")
    return turn


def _in_order(results: Sequence[tuple[int, Turn]], asked: Turn, made: Sequence[str], where: str) -> list[Turn]:
    """The results of a turn's calls in their order."""
    calls = _call_ids(asked)
    for number, turn in results:
        if turn.tool_call_id is not None and made and turn.tool_call_id not in made:
            detail = f"{where}[{number}] answers call {turn.tool_call_id!r}; made so far: {', '.join(made)}"
            raise Refused("unknown_tool_call", detail)
    turns, answered = [turn for _, turn in results], [turn.tool_call_id for _, turn in results]
    if None in answered and calls and len(turns) not in (1, len(calls)):
        reason = "unknown_tool_call" if len(turns) > len(calls) else "unanswered_tool_call"
        raise Refused(reason, f"{where} has {len(turns)} results before message {results[-1][0] + 1}, and {len(calls)} calls")
    twice = [call_id for call_id in answered if call_id in calls and answered.count(call_id) > calls.count(call_id)]
    if twice and None not in answered:
        detail = f"{where} has {answered.count(twice[0])} results of call {twice[0]!r} before message {results[-1][0] + 1}"
        raise Refused("unknown_tool_call", f"{detail}. Keep the right one")
    if None not in calls and None not in answered and not {*answered}.isdisjoint(calls):
        if missing := [call_id for call_id in calls if call_id not in answered]:
            detail = f"{where} has no result of call {missing[0]!r} before message {results[-1][0] + 1}; others of the same turn have one"
            raise Refused("unanswered_tool_call", detail)
        turns.sort(key=lambda turn: calls.index(turn.tool_call_id) if turn.tool_call_id in calls else -1)
    else:
        called = [json.loads(region.text)["name"] for region in asked.regions if region.kind == TOOL_CALL]
        named = [turn.name or "" for turn in turns]
        if named != called and sorted(named) == sorted(called):
            detail = f"{where} has results of {', '.join(named)} before message {results[-1][0] + 1}, and calls of {', '.join(called)}"
            raise Refused("unknown_tool_call", f"{detail}. Give them ids, or the order of the calls")
    return turns


def _call_ids(turn: Turn) -> list[str | None]:
    """The id of each call of `turn`, `None` where it has none."""
    return [json.loads(region.text).get("id") if '"id":' in region.text else None for region in turn.regions if region.kind == TOOL_CALL]


def require_offered(turns: Iterable[Turn], tools: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> None:
    """Reject (``unknown_tool``) a call of a tool that is not among the named `tools` of a row, which may have none."""
    functions = [tool["function"] if isinstance(tool.get("function"), Mapping) else tool for tool in tools]
    builtin = options.get("builtin_tools")
    names = [*(function.get("name") for function in functions), *(builtin if isinstance(builtin, list) else ())]
    if not functions or None in names:
        return
    for called in (json.loads(region.text)["name"] for turn in turns for region in turn.regions if region.kind == TOOL_CALL):
        if called not in names:
            raise Refused("unknown_tool", f"{called!r} is called, and the tools on offer are {', '.join(sorted({*map(str, names)}))}")


# Columns with one meaning in all schemas: system prompt, tools, documents, template variables, label, weight.


class Offered(TypedDict):
    """The inputs of a chat template other than the messages."""

    tools: tuple[Mapping[str, Any], ...]
    documents: tuple[Mapping[str, Any], ...]
    template_options: Mapping[str, Any]


def chat_sample(row: Row, turns: Sequence[Turn], tools_key: str | None = "tools") -> Sample:
    """A conversation for a chat template, with the row's label, weight, tools, documents and template variables."""
    return Sample(weighted_by(row, turns), label=label_of(row), **offered(row, tools_key))


def plain_sample(row: Row, turns: Sequence[Turn]) -> Sample:
    """Text that no template renders, with the row's label and weight. It has no place for tools or documents."""
    return Sample(weighted_by(row, turns), label=label_of(row))


def separated(turns: Sequence[Turn], separator: str | None) -> tuple[Turn, ...]:
    """`turns` without a chat template, with `separator` at the end of each prompt before a completion, never trained; `None` is the tokenizer's own."""
    if separator == "":
        return tuple(turns)
    between = Region(SEPARATOR, separator or "", 0.0)
    return tuple(
        changed(turn, regions=(*turn.regions, between))
        if turn.role == PROMPT and at + 1 < len(turns) and turns[at + 1].role == COMPLETION
        else turn
        for at, turn in enumerate(turns)
    )


def offered(row: Row, tools_key: str | None = "tools") -> Offered:
    """The tools, documents and template variables of a row. With `tools_key` ``tools`` its other spellings are read as well."""
    options = row.get(TEMPLATE_OPTIONS)
    if isinstance(options, str):
        try:
            options = loads(options) if options.strip() else None
        except ValueError as error:
            raise Refused("wrong_type", f"{TEMPLATE_OPTIONS!r} is not JSON: {error}") from error
    # Arrow gives each row the keys of all others, and people write "" or [] for none
    listed = whole(as_mapping(options, TEMPLATE_OPTIONS)) if has_content(options) else {}
    options_by_name = {key: value for key, value in listed.items() if has_content(value)}
    documents_column = row.get(DOCUMENTS)
    documents = tuple([whole(document) for _, document in objects(documents_column, DOCUMENTS)]) if has_content(documents_column) else ()
    for key, value in ((TEMPLATE_OPTIONS, options_by_name), (DOCUMENTS, documents)):
        if value:
            require_json(value, "wrong_type", key)
    return {"tools": tools_of(row, tools_key), "documents": documents, "template_options": options_by_name}


def tools_of(row: Row, key: str | None) -> tuple[Mapping[str, Any], ...]:
    """The tools under `key`, or under any spelling of it where that is ``tools``. Two different lists are rejected."""
    keys = TOOLS if key == TOOLS[0] else (key,)
    tool_lists = [tools for column in keys if column is not None and row.get(column) is not None and (tools := tools_at(row, column))]
    if any(tools != tool_lists[0] for tools in tool_lists):
        detail = f"different tools stand under {' and '.join(repr(column) for column in keys if row.get(str(column)))}"
        raise Refused("conflicting_tools", detail)
    return tool_lists[0] if tool_lists else ()


def with_system(turns: Sequence[Turn], system: str) -> tuple[Turn, ...]:
    """`turns` with a `system` prompt of the row in front, unless blank; two different system prompts are rejected."""
    if not system.strip():
        return tuple(turns)
    if not turns or turns[0].role != SYSTEM:
        return (turn(SYSTEM, system), *turns)
    if turns[0].text != system:
        raise Refused("two_systems", f"the chat begins with the system prompt {turns[0].text[:40]!r}, its column says {system[:40]!r}")
    return tuple(turns)


def with_system_of(row: Row, turns: Sequence[Turn], key: str | None = SYSTEM_PROMPT) -> tuple[Turn, ...]:
    """`turns` with the system prompt in column `key` in front; an absent, null or blank column adds none."""
    return with_system(turns, "" if key is None else text_of(row, key, required=False))


def label_of(row: Row) -> bool | None:
    """The label of a row's answer under ``label`` or ``kto_tag``, true for a good one; `None` where it has none."""
    labels = {key: row[key] for key in LABELS if row.get(key) is not None}
    for key, value in labels.items():
        if not isinstance(value, bool):
            wrong_type(value, key, "true or false, or to be listed under `ignore` where it does not judge the answer")
    if len(set(labels.values())) > 1:
        raise Refused("conflicting_labels", f"{' and '.join(f'{key} is {value}' for key, value in labels.items())}")
    return next(iter(labels.values()), None)


def weighted_by(row: Row, turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """`turns` with the loss weights of answers multiplied by the row's weight. 1 changes nothing.

    A row of weight 0 is rejected (``nothing_to_train``): otherwise a mask policy could still train its questions and stop tokens.
    """
    weight = loss_weight_of(row, "")
    if weight is None or weight == 1:
        return tuple(turns)
    if not weight:
        raise Refused("nothing_to_train", "the record says of itself that it is not trained")

    def scaled(region: Region) -> Region:
        product = weight * (1.0 if region.loss_weight is None else region.loss_weight)
        return changed(region, loss_weight=as_weight(product, "the record's weight times its part's"))

    answers = (ASSISTANT, COMPLETION)
    return tuple(changed(turn, regions=tuple(map(scaled, turn.regions))) if turn.role in answers else turn for turn in turns)


# Preference pairs.


def pair_of(row: Row, prompt: Sequence[Turn], chosen: Sequence[Turn], rejected: Sequence[Turn], *, tools_key: str | None = "tools") -> Pair:
    """A pair with the row's margin, weight, tools, documents and template variables; see `pair`."""
    base = pair(prompt, weighted_by(row, chosen), weighted_by(row, rejected))
    margin = None if row.get("margin") is None else as_number(row["margin"], "margin")
    return changed(base, margin=margin, **offered(row, tools_key))


def pair(prompt: Sequence[Turn], chosen: Sequence[Turn], rejected: Sequence[Turn]) -> Pair:
    """A checked pair. Rejects ``empty_prompt``, ``empty_answer``, ``role_order`` (an answer that no assistant begins) and ``equal_answers``."""
    if not any(turn.text.strip() for turn in prompt):
        raise Refused("empty_prompt", "the prompt is empty")
    for side, answer in (("chosen", chosen), ("rejected", rejected)):
        if not any(region.text.strip() for turn in answer for region in turn.regions):
            raise Refused("empty_answer", f"the {side} answer is empty")
        if answer[0].role not in (ASSISTANT, COMPLETION):
            raise Refused("role_order", f"the {side} answer begins with a {answer[0].role} turn")
        if answer[-1].role == USER:
            raise Refused("role_order", f"the {side} answer ends with a user turn")
    if content_of(chosen) == content_of(rejected):
        raise Refused("equal_answers", f"chosen and rejected are the same: {answer[0].text[:60]!r}")
    return Pair(tuple(prompt), tuple(chosen), tuple(rejected))


def common_prompt(chosen: Sequence[Turn], rejected: Sequence[Turn]) -> tuple[Sequence[Turn], Sequence[Turn], Sequence[Turn]]:
    """Split two whole chats into prompt, chosen and rejected answer. The prompt is their longest common prefix of whole turns.

    Rejects ``equal_answers`` where nothing differs, and ``prompts_differ`` where the first difference is not in an answer.
    """
    if not chosen or not rejected:
        raise Refused("empty_answer", f"the {'rejected' if chosen else 'chosen'} chat has no turns")
    shared = sum(
        1 for _ in takewhile(lambda contents: contents[0] == contents[1], zip(content_of(chosen), content_of(rejected), strict=False))
    )
    if shared == len(chosen) == len(rejected):
        raise Refused("equal_answers", f"chosen and rejected are the same {shared} turns")
    for side in (chosen[shared:], rejected[shared:]):
        if side and side[0].role not in (ASSISTANT, COMPLETION):
            raise Refused("prompts_differ", f"chosen and rejected first differ in turn {shared}, which is of role {side[0].role}")
    return chosen[:shared], chosen[shared:], rejected[shared:]


def turns_of(texts: Iterable[tuple[str, str]]) -> tuple[Turn, ...]:
    """One turn for each ``(role, text)``; an empty text is rejected."""
    return tuple(turn(role, needed(text, "empty_answer" if role == ASSISTANT else "empty_turn", f"{role} turn")) for role, text in texts)


def content_of(turns: Sequence[Turn]) -> list[tuple[Any, ...]]:
    """The content of turns as comparable tuples, without loss weights."""
    return [(turn.role, turn.name, turn.tool_call_id, [(region.kind, region.text) for region in turn.regions]) for turn in turns]
