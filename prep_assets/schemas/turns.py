"""What schemas make turns of: roles, messages, tool calls, images, columns that mean the same everywhere, pairs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, TypedDict

from prep_assets.caches import bounded_cache
from prep_assets.errors import Refused, nearest
from prep_assets.samples import (
    ASSISTANT,
    COMPLETION,
    IMAGE,
    SYSTEM,
    TEXT,
    THINKING,
    TOOL,
    TOOL_CALL,
    USER,
    Pair,
    Region,
    Sample,
    Turn,
    turn,
)
from prep_assets.schemas.fields import (
    CALLS,
    DOCUMENTS,
    LABELS,
    REASONING,
    SYSTEM_PROMPT,
    TEMPLATE_OPTIONS,
    TOOLS,
    Row,
    as_integer,
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

# Role tags of data sets and the roles they stand for.

OPENAI_ROLES: Mapping[str, str] = {
    "system": SYSTEM,
    "developer": SYSTEM,
    "user": USER,
    "assistant": ASSISTANT,
    "tool": TOOL,
    "function": TOOL,
}


def role_at(message: Row, key: str, roles: Mapping[str, str], where: str) -> str:
    """The role for the tag under `key`. A tag that `roles` does not list is refused: mapping it by guess would train the wrong side."""
    tag = text_of(message, key, where)
    if tag not in roles:
        hint = nearest(tag, roles)
        raise Refused("unknown_role", f"{where} has {key} {tag!r}{hint}; known tags: {', '.join(roles)}")
    return roles[tag]


def require_answer(turns: Sequence[Turn]) -> None:
    """Refuse a chat in which the assistant says nothing (``no_assistant_turn``)."""
    if not any(turn.role == ASSISTANT for turn in turns):
        raise Refused("no_assistant_turn", f"the roles are {_roles(turns)}")


def require_alternation(turns: Sequence[Turn], *, ends_with_answer: bool) -> None:
    """Refuse (``role_order``) what is not: a system turn or none, then user or tool turns and assistant turns by turns."""
    body = turns[1:] if turns and turns[0].role == SYSTEM else turns
    for position, turn in enumerate(body):
        if (turn.role == ASSISTANT) != (position % 2 == 1) or turn.role == SYSTEM:
            raise Refused("role_order", f"turn {position} after the system turn is {turn.role}; the roles are {_roles(turns)}")
    if bool(body) and (body[-1].role == ASSISTANT) != ends_with_answer:
        raise Refused(
            "role_order", f"the last turn must {'' if ends_with_answer else 'not '}be the assistant's; the roles are {_roles(turns)}"
        )


def require_calls_before_results(turns: Sequence[Turn]) -> None:
    """Refuse (``role_order``) a tool turn that follows neither an assistant turn nor another tool turn."""
    for position, turn in enumerate(turns):
        if turn.role == TOOL and (position == 0 or turns[position - 1].role not in (ASSISTANT, TOOL)):
            raise Refused("role_order", f"turn {position} is a tool result that answers no assistant turn; the roles are {_roles(turns)}")


def require_open_end(turns: Sequence[Turn], where: str) -> None:
    """Refuse a prompt that is empty (``empty_prompt``) or whose last turn is the assistant's own or the system's (``role_order``)."""
    if not turns:
        raise Refused("empty_prompt", f"{where!r} has no turns")
    if turns[-1].role in (ASSISTANT, SYSTEM):
        raise Refused(
            "role_order", f"{where!r} ends with the {turns[-1].role} turn; nothing is left to answer. The roles are {_roles(turns)}"
        )


def _roles(turns: Sequence[Turn]) -> str:
    return " ".join(turn.role for turn in turns) or "none"


# Tool calls and tool descriptions, in the shapes that data sets have them.
#
# A call becomes the text ``{"name":…,"arguments":{…}}``, with its ``"id"`` at the end where it has one: compact JSON, non-ASCII characters as they are.

ARGUMENTS = ("arguments", "parameters", "input")
"""Where a call has its arguments: OpenAI, Llama 3, Anthropic."""
MOST_SHARED = 1 << 14
"""Characters of the JSON text of tools that is remembered, for rows after it that have the same."""
CALL_TYPES = ("function", "tool_call", "tool_use", "function_call")


def call_text(call: Row, where: str) -> str:
    """The text of one call, given flat (``{"name", "arguments"}``) or as OpenAI nests it (``{"function": {"name", "arguments"}}``).

    Arguments stand under one of `ARGUMENTS`, as an object or its JSON text; none at all are ``{}``. Anything else is refused as
    ``bad_tool_call``.
    """
    function = as_mapping(call["function"], f"{where}.function") if call.get("function") is not None else call
    name, identity = text_of(function, "name", where), call.get("id")
    if (kind := call.get("type")) is not None and kind not in CALL_TYPES:
        raise Refused("bad_tool_call", f"{where} is of type {kind!r}; known: {', '.join(CALL_TYPES)}")
    given = {key: whole(function[key]) for key in ARGUMENTS if function.get(key) is not None}
    if sum(map(has_content, given.values())) > 1:
        raise Refused("bad_tool_call", f"{where} has arguments under {' and '.join(given)}")
    arguments = next((value for value in given.values() if has_content(value)), None)
    if isinstance(arguments, str):
        arguments = _parsed(arguments, "bad_tool_call", f"{where}.arguments") if arguments.strip() else {}
    if not name.strip() or not isinstance(arguments, Mapping | None):
        raise Refused("bad_tool_call", f"{where} needs a name and an object of arguments; they are {name!r} and {arguments!r}")
    text = {"name": name, "arguments": arguments or {}, **({} if identity is None else {"id": as_text(identity, f"{where}.id")})}
    return require_json(text, "bad_tool_call", f"{where}.arguments")


def require_json(value: object, reason: str, where: str) -> str:
    """`value` as compact JSON; refused with `reason` where JSON has no form for it, such as NaN or a date of a Parquet file."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(reason, f"{where} cannot be written as JSON: {error}") from error


def call_texts(value: object, where: str) -> list[str]:
    """The texts of one call or of an array of calls, given as JSON text or as JSON values."""
    parsed = _parsed(value, "bad_tool_call", where) if isinstance(value, str) else value
    texts = [call_text(call, place) for place, call in objects([parsed] if isinstance(parsed, Mapping) else parsed, where)]
    if not texts:
        raise Refused("bad_tool_call", f"{where!r} has no call")
    return texts


def tools_at(row: Row, key: str | None) -> tuple[Mapping[str, Any], ...]:
    """The tools on offer: an array of JSON schemas, one schema, or the JSON text of either. Absent, null and ``""`` are no tools.

    A schema without the ``{"type": "function", "function": …}`` wrapper gets it, since that is the form chat templates look for.
    """
    value = None if key is None else whole(row.get(key))
    if not isinstance(value, str):
        return _tools(value, str(key))
    return (_shared_tools if len(value) <= MOST_SHARED else _tools_of)(value, str(key))


def _tools_of(text: str, where: str) -> tuple[Mapping[str, Any], ...]:
    """The tools of JSON text, which many rows share. Nobody changes them."""
    return _tools(_parsed(text, "bad_tools", where) if text.strip() else None, where)


_shared_tools = bounded_cache("tools", 256)(_tools_of)


def _tools(value: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if not has_content(value):
        return ()
    require_json(value, "bad_tools", where)
    tools = []
    for place, tool in objects([value] if isinstance(value, Mapping) else value, where):
        is_wrapped = "function" in tool or "name" not in tool
        if is_wrapped and not isinstance(tool.get("function"), Mapping) and "type" not in tool:
            fields = ", ".join(map(repr, tool)) or "no fields"
            raise Refused("bad_tools", f"{place} is not a tool: it has {fields}, needs 'name' or 'function'")
        tools.append(tool if is_wrapped else {"type": "function", "function": dict(tool)})
    return tuple(tools)


def _parsed(text: str, reason: str, where: str) -> Any:
    try:
        return loads(text)
    except ValueError as error:
        raise Refused(reason, f"{where!r} is not JSON: {error}; it begins {text[:60]!r}") from error


# The ``images`` column of a row and the marks in its text that say where the images stand. Only paths: no image is opened.


class Images:
    """The images of one row, handed out in order as their marks are met.

    A row without the column has no marks: the token is then plain text (a page about HTML may well contain ``<image>``). Where the column
    is called ``images``, one called ``image`` stands in for it: many data sets with one image a row have that.
    """

    __slots__ = ("_images", "_key", "_taken", "_token")

    def __init__(self, row: Row, key: str, token: str) -> None:
        column = row.get(key)
        if key == "images" and column is None and row.get("image") is not None:
            key, column = "image", row["image"] if has_content(row["image"]) else []
        self._key, self._token, self._taken = key, token, 0
        self._images = None if column is None else images_of(column, key)

    def __bool__(self) -> bool:
        """Whether the row has the column."""
        return self._images is not None

    def split(self, text: str, weight: float | None) -> list[Region]:
        """`text` as text and image regions. Each mark takes the next image of the row."""
        if self._images is None or self._token not in text:
            return [Region(TEXT, text, weight)] if text else []
        regions: list[Region] = []
        for number, piece in enumerate(text.split(self._token)):
            if number:
                regions.append(replace(self.take(), loss_weight=weight))
            if piece:
                regions.append(Region(TEXT, piece, weight))
        return regions

    def take(self) -> Region:
        """The next image."""
        images = self._images or []
        if self._taken >= len(images):
            raise Refused("image_count", f"more images are placed in the text than the {len(images)} of {self._key!r}")
        self._taken += 1
        return images[self._taken - 1]

    def require_all_taken(self) -> None:
        """Refuse (``image_count``) a row with images that no mark places."""
        if self._images is not None and self._taken < len(self._images):
            raise Refused(
                "image_count", f"{self._key!r} has {len(self._images)} images, the text places {self._taken} with {self._token!r}"
            )


def image_of(value: object, where: str, beside: Mapping[str, Any] | None = None) -> Region:
    """One image: its path or URL, a string or an object with ``path`` or ``url`` (the forms of Hugging Face and of OpenAI), and its ``width`` and
    ``height`` in pixels, where the object says them, or what stands `beside` it.

    Raises:
        Refused: ``missing_image``; ``image_resized``, where a row asks for another resolution than that of the picture.
    """
    attributes = value if isinstance(value, Mapping) else beside or {}
    if isinstance(value, Mapping):
        key = "path" if value.get("path") is not None else "url"
        value = value_at(value, key, where)
    path = as_text(value, where)
    if not path:
        raise Refused("missing_image", f"{where!r} is an empty path")
    if resized := [key for key in RESIZING if attributes.get(key) is not None]:
        detail = (
            f"{where!r} asks for {resized[0]} {attributes[resized[0]]!r}; one rule counts the tokens of all images of a store. Leave it out"
        )
        raise Refused("image_resized", detail)
    return Region(IMAGE, path, size=_size(attributes, where))


RESIZING = ("resized_width", "resized_height", "min_pixels", "max_pixels")
"""What Qwen's own rows say of single images."""


def _size(attributes: Mapping[str, Any], where: str) -> tuple[int, int] | None:
    sides = [attributes.get(name) for name in ("width", "height")]
    if sides == [None, None]:
        return None
    width, height = (as_integer(side, f"{where}.{name}") for side, name in zip(sides, ("width", "height"), strict=True))
    if min(width, height) < 1:
        raise Refused("wrong_type", f"{where!r} is {width} x {height} pixels, needs 1 or more along each side")
    return width, height


def images_of(column: object, key: str) -> list[Region]:
    """The images of a column: one, or an array of them."""
    if isinstance(column, str | Mapping):
        return [image_of(column, key)]
    if isinstance(column, list | tuple):
        return [image_of(value, f"{key}[{i}]") for i, value in enumerate(column)]
    return wrong_type(column, key, "an array of paths")


# What one message says: a string, or an array of typed parts, as regions; and an assistant's reasoning in a field of its own, in all its spellings.

TEXT_PARTS = ("text", "input_text", "output_text")
THINKING_PARTS = ("reasoning", "thinking")
CALL_PARTS = ("tool_call", "tool_use")
IMAGE_PARTS = ("image", "image_url")
PARTS = (*TEXT_PARTS, *THINKING_PARTS, *CALL_PARTS, *IMAGE_PARTS)


def content_regions(content: object, where: str, weight: float | None, images: Images) -> list[Region]:
    """Regions of a message's content.

    A part holds its text under the name of its type, ``text`` (OpenAI) or ``value`` (LLaMA-Factory v1). An image part without a path takes
    the next one of the row's image column (Hugging Face). A part's own loss weight goes before the message's.
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
        return images.split(as_text(_first(part, ("text", "value"), where), where), weight)
    if kind in THINKING_PARTS:
        return [Region(THINKING, as_text(_first(part, (kind, "text", "value"), where), where), weight)]
    if kind in CALL_PARTS:
        holders = ("value", "tool_call")
        is_call = all(part.get(key) is None for key in holders)
        texts = [call_text(part, where)] if is_call else call_texts(_first(part, holders, where), f"{where}.value")
        return [Region(TOOL_CALL, text, weight) for text in texts]
    if kind in IMAGE_PARTS:
        keys = ("image_url", "image", "path", "url", "value")
        has_image = any(part.get(key) is not None for key in keys)
        image = image_of(_first(part, keys, where), where, part) if has_image else images.take()
        return [replace(image, loss_weight=weight)]
    raise Refused("unknown_part", f"{where} has type {kind!r}{nearest(kind, PARTS)}; known: {', '.join(PARTS)}")


def _first(part: Row, keys: Sequence[str], where: str) -> Any:
    """The value under one of `keys`. Two that differ are refused (``conflicting_content``)."""
    present = [key for key in keys if part.get(key) is not None]
    if any(part[key] != part[present[0]] for key in present):
        raise Refused("conflicting_content", f"{where} has different values under {' and '.join(present)}")
    return part[present[0]] if present else value_at(part, keys[0], where)


DETAILS = "reasoning_details"
_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary"}


def reasoning_regions(message: Row, where: str, weight: float | None) -> list[Region]:
    """The reasoning of a message, or of a row that is an answer: one region, or none.

    Refuses two spellings with different texts (``conflicting_reasoning``).
    """
    texts = {key: as_text(message[key], inside(where, key)) for key in REASONING if has_content(message.get(key))}
    if has_content(message.get(DETAILS)):
        texts[DETAILS] = _details(message[DETAILS], inside(where, DETAILS))
    if len(set(texts.values())) > 1:
        raise Refused("conflicting_reasoning", f"{where or 'the record'} has different texts under {', '.join(texts)}")
    return [Region(THINKING, text, weight) for text in list(texts.values())[:1]]


def _details(value: object, where: str) -> str:
    """OpenRouter's array of parts, joined. Encrypted parts are refused: they cannot be read."""
    texts = []
    for place, part in objects(value, where):
        kind = text_of(part, "type", place)
        if kind not in _TEXTS:
            raise Refused("unknown_part", f"{place} has type {kind!r}; known: {', '.join(_TEXTS)}")
        for key in ("format", "signature"):
            part.get(key)  # of the provider's; no text
        texts.append(text_of(part, _TEXTS[kind], place))
    return "".join(texts)


# A list of messages as turns, whatever the data set calls their fields and roles.


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How a data set writes its messages.

    Attributes:
        role_key: field with the role tag.
        content_key: field with the content.
        roles: the tags that occur and the roles they stand for.
        call_tag: the tag of messages whose content is the JSON of tool calls (ShareGPT's ``function_call``).
    """

    role_key: str = "role"
    content_key: str = "content"
    roles: Mapping[str, str] = field(default_factory=lambda: OPENAI_ROLES)
    call_tag: str | None = None

    def turns(self, messages: object, where: str, images: Images | None = None) -> tuple[Turn, ...]:
        """One turn for each message. Without a column of images, marks of images in a text are text.

        Refuses what the fields cannot mean: unknown roles and parts, an assistant that says nothing (``empty_answer``), a user that says
        nothing (``empty_turn``), a tool result without a call before it (``role_order``, ``unknown_tool_call``).
        """
        images = Images({}, "images", "<image>") if images is None else images
        listed = list(objects(messages, where))
        turns = tuple([self._plain(message, images) or self._full(message, place, images) for place, message in listed])
        require_calls_before_results(turns)
        _require_known_ids(turns, where)
        return turns

    def _plain(self, message: Row, images: Images) -> Turn | None:
        """The turn of a message that is a role and a text, as most are."""
        if len(message) != 2:
            return None
        tag, text = message.get(self.role_key), message.get(self.content_key)
        role = self.roles.get(tag) if isinstance(tag, str) and tag != self.call_tag else None
        return Turn(role, tuple(images.split(text, None))) if role is not None and isinstance(text, str) and text.strip() else None

    def _full(self, message: Row, where: str, images: Images) -> Turn:
        role = role_at(message, self.role_key, self.roles, where)
        weight = loss_weight_of(message, where)
        place = f"{where}.{self.content_key}"
        content = _content(message, message.get(self.content_key), where)
        if self.call_tag is not None and message.get(self.role_key) == self.call_tag:
            regions = [Region(TOOL_CALL, text, weight) for text in call_texts(content, place)]
        else:
            regions = content_regions(content, place, weight, images)
        calls = {key: call_texts(message[key], f"{where}.{key}") for key in CALLS if has_content(message.get(key))}
        if len(calls) > 1:
            raise Refused("bad_tool_call", f"{where} has calls under {' and '.join(calls)}")
        called = [Region(TOOL_CALL, text, weight) for texts in calls.values() for text in texts]
        regions = [*reasoning_regions(message, where, weight), *regions, *called]
        _require_content(role, regions, place)
        name, call_id = (None if message.get(key) is None else text_of(message, key, where) for key in ("name", "tool_call_id"))
        return Turn(role, tuple(regions) or (Region(TEXT, "", weight),), name, call_id)


def _content(message: Row, content: object, where: str) -> object:
    """The content, or OpenAI's ``refusal`` in its place. An answer that is only begun (Mistral's ``prefix``) is refused."""
    if message.get("prefix"):
        raise Refused("open_prefix", f"{where} is the beginning of an answer, which a model continues; there is no answer to train")
    if not has_content(refusal := message.get("refusal")):
        return content
    if has_content(content):
        raise Refused("conflicting_content", f"{where} has both a content and a refusal")
    return as_text(refusal, f"{where}.refusal")


def _require_content(role: str, regions: Sequence[Region], where: str) -> None:
    """An answer is text, a call or an image; thoughts alone are not enough, and only an assistant thinks or calls."""
    if role == ASSISTANT:
        if not any(region.kind != THINKING and region.text.strip() for region in regions):
            raise Refused("empty_answer", f"{where!r} has no text and no tool call")
    elif foreign := [region.kind for region in regions if region.kind in (THINKING, TOOL_CALL)]:
        raise Refused("role_content", f"{where!r}: a {role} turn cannot have {foreign[0]}")
    elif role == USER and not any(region.text.strip() for region in regions):
        raise Refused("empty_turn", f"{where!r} of the user is empty")


def _require_known_ids(turns: Sequence[Turn], where: str) -> None:
    """Where calls have ids, a result must answer one that was made before it."""
    made: list[str] = []
    for number, turn in enumerate(turns):
        if turn.role == TOOL and turn.tool_call_id is not None and made and turn.tool_call_id not in made:
            raise Refused("unknown_tool_call", f"{where}[{number}] answers call {turn.tool_call_id!r}; made so far: {', '.join(made)}")
        ids = [json.loads(region.text).get("id") for region in turn.regions if region.kind == TOOL_CALL]
        made += [call_id for call_id in ids if call_id is not None]


# Columns that mean the same whatever the schema: a system prompt, tools, documents, variables of the template, a label, a weight.


class Offered(TypedDict):
    """What a row offers its answers beside the conversation."""

    tools: tuple[Mapping[str, Any], ...]
    documents: tuple[Mapping[str, Any], ...]
    template_options: Mapping[str, Any]


def chat_sample(row: Row, turns: Sequence[Turn], tools_key: str | None = "tools") -> Sample:
    """A conversation for a chat template, with all that the row's own columns say of it."""
    return Sample(weighted_by(row, turns), label=label_of(row), **offered(row, tools_key))


def plain_sample(row: Row, turns: Sequence[Turn]) -> Sample:
    """Text that no template renders: nothing can be offered beside it."""
    return Sample(weighted_by(row, turns), label=label_of(row))


def offered(row: Row, tools_key: str | None = "tools") -> Offered:
    """The tools, the documents and the variables of the template that a row has. ``tools`` is read in its other spellings too."""
    options = row.get(TEMPLATE_OPTIONS)
    if isinstance(options, str):
        try:
            options = loads(options) if options.strip() else None
        except ValueError as error:
            raise Refused("wrong_type", f"{TEMPLATE_OPTIONS!r} is not JSON: {error}") from error
    plain = whole(as_mapping(options, TEMPLATE_OPTIONS)) if has_content(options) else {}
    listed = row.get(DOCUMENTS)
    documents = tuple([whole(each) for _, each in objects(listed, DOCUMENTS)]) if has_content(listed) else ()
    for key, value in ((TEMPLATE_OPTIONS, plain), (DOCUMENTS, documents)):
        if value:
            require_json(value, "wrong_type", key)
    return {"tools": tools_of(row, tools_key), "documents": documents, "template_options": plain}


def tools_of(row: Row, key: str | None) -> tuple[Mapping[str, Any], ...]:
    """The tools on offer, under `key`; under any of its spellings where that is ``tools``. Two different lists are refused."""
    keys = TOOLS if key == TOOLS[0] else (key,)
    found = [tools for each in keys if (tools := tools_at(row, each))]
    if any(tools != found[0] for tools in found):
        raise Refused("conflicting_tools", f"different tools stand under {' and '.join(repr(each) for each in keys if row.get(str(each)))}")
    return found[0] if found else ()


def with_system(turns: Sequence[Turn], system: str) -> tuple[Turn, ...]:
    """`turns` with a system turn from the row's own column in front; two different system prompts are refused."""
    if not system.strip():
        return tuple(turns)
    if not turns or turns[0].role != SYSTEM:
        return (turn(SYSTEM, system), *turns)
    if turns[0].text != system:
        raise Refused("two_systems", f"the chat begins with the system prompt {turns[0].text[:40]!r}, its column says {system[:40]!r}")
    return tuple(turns)


def with_system_of(row: Row, turns: Sequence[Turn], key: str | None = SYSTEM_PROMPT) -> tuple[Turn, ...]:
    """`turns` after the system prompt that stands in a column of the row; an absent, null or blank column adds none."""
    return with_system(turns, "" if key is None else text_of(row, key, required=False))


def label_of(row: Row) -> bool | None:
    """Whether the row calls its answer good (true) or bad (false), under ``label`` or ``kto_tag``; `None` where it does not say."""
    labels = {key: row[key] for key in LABELS if row.get(key) is not None}
    for key, value in labels.items():
        if not isinstance(value, bool):
            wrong_type(value, key, "true or false, or to be listed under `ignore` where it does not judge the answer")
    if len(set(labels.values())) > 1:
        raise Refused("conflicting_labels", f"{' and '.join(f'{key} is {value}' for key, value in labels.items())}")
    return next(iter(labels.values()), None)


def weighted_by(row: Row, turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """`turns` with the row's own loss weight on each of its answers, times the weight that a message has of its own. 1 changes nothing.

    A row of weight 0 is refused (``nothing_to_train``): a policy may train its questions and stop tokens, and it asks for neither.
    """
    weight = loss_weight_of(row, "")
    if weight is None or weight == 1:
        return tuple(turns)
    if not weight:
        raise Refused("nothing_to_train", "the record says of itself that it is not trained")

    def scaled(region: Region) -> Region:
        product = weight * (1.0 if region.loss_weight is None else region.loss_weight)
        return replace(region, loss_weight=as_weight(product, "the record's weight times its part's"))

    answers = (ASSISTANT, COMPLETION)
    return tuple(replace(each, regions=tuple(map(scaled, each.regions))) if each.role in answers else each for each in turns)


# What makes two answers a preference pair.


def pair_of(row: Row, prompt: Sequence[Turn], chosen: Sequence[Turn], rejected: Sequence[Turn], *, tools_key: str | None = "tools") -> Pair:
    """A pair with all that the row's own columns say of it, its ``margin`` among them; see `pair`."""
    found = pair(prompt, weighted_by(row, chosen), weighted_by(row, rejected))
    margin = None if row.get("margin") is None else as_number(row["margin"], "margin")
    return replace(found, margin=margin, **offered(row, tools_key))


def pair(prompt: Sequence[Turn], chosen: Sequence[Turn], rejected: Sequence[Turn]) -> Pair:
    """A pair, or a refusal: ``empty_prompt``, ``empty_answer``, ``role_order`` (an answer that no assistant begins), ``equal_answers``."""
    if not any(part.text.strip() for part in prompt):
        raise Refused("empty_prompt", "the prompt is empty")
    for side, answer in (("chosen", chosen), ("rejected", rejected)):
        if not any(region.text.strip() for part in answer for region in part.regions):
            raise Refused("empty_answer", f"the {side} answer is empty")
        if answer[0].role not in (ASSISTANT, COMPLETION):
            raise Refused("role_order", f"the {side} answer begins with a {answer[0].role} turn")
    if content_of(chosen) == content_of(rejected):
        raise Refused("equal_answers", f"chosen and rejected are the same: {answer[0].text[:60]!r}")
    return Pair(tuple(prompt), tuple(chosen), tuple(rejected))


def common_prompt(chosen: Sequence[Turn], rejected: Sequence[Turn]) -> tuple[Sequence[Turn], Sequence[Turn], Sequence[Turn]]:
    """Prompt and both answers of two whole chats: the prompt is their longest common beginning of whole turns.

    Refuses ``equal_answers`` where nothing differs, ``prompts_differ`` where the first difference is not in an answer.
    """
    if not chosen or not rejected:
        raise Refused("empty_answer", f"the {'rejected' if chosen else 'chosen'} chat has no turns")
    same = sum(1 for _ in takewhile(lambda sides: sides[0] == sides[1], zip(content_of(chosen), content_of(rejected), strict=False)))
    if same == len(chosen) == len(rejected):
        raise Refused("equal_answers", f"chosen and rejected are the same {same} turns")
    for side in (chosen[same:], rejected[same:]):
        if side and side[0].role not in (ASSISTANT, COMPLETION):
            raise Refused("prompts_differ", f"chosen and rejected first differ in turn {same}, which is of role {side[0].role}")
    return chosen[:same], chosen[same:], rejected[same:]


def turns_of(texts: Iterable[tuple[str, str]]) -> tuple[Turn, ...]:
    """One turn for each ``(role, text)``; an empty text is refused."""
    return tuple(turn(role, needed(text, "empty_answer" if role == ASSISTANT else "empty_turn", f"{role} turn")) for role, text in texts)


def content_of(turns: Sequence[Turn]) -> list[tuple[Any, ...]]:
    """Who said what, loss weights aside."""
    return [(part.role, part.name, part.tool_call_id, [(region.kind, region.text) for region in part.regions]) for part in turns]
