"""A list of messages as turns, whatever the data set calls their fields and roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Turn
from prep_assets.schemas.content import content_regions, reasoning_regions
from prep_assets.schemas.field_names import CALLS
from prep_assets.schemas.fields import as_list, as_mapping, as_text
from prep_assets.schemas.images import Images
from prep_assets.schemas.roles import OPENAI_ROLES, require_calls_before_results, role_at
from prep_assets.schemas.tools import call_id, call_texts
from prep_assets.schemas.view import has_content
from prep_assets.schemas.weights import loss_weight_of


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
        rows = [as_mapping(message, f"{where}[{i}]") for i, message in enumerate(as_list(messages, where))]
        turns = tuple(self._turn(message, f"{where}[{i}]", images) for i, message in enumerate(rows))
        require_calls_before_results(turns)
        _require_known_ids(turns, where)
        return turns

    def _turn(self, message: Mapping[str, Any], where: str, images: Images) -> Turn:
        return (len(message) == 2 and self._plain(message, images)) or self._full(message, where, images)

    def _plain(self, message: Mapping[str, Any], images: Images) -> Turn | None:
        """The turn of a message that is a role and a text, as most are."""
        tag, text = message.get(self.role_key), message.get(self.content_key)
        role = self.roles.get(tag) if isinstance(tag, str) and tag != self.call_tag else None
        return Turn(role, tuple(images.split(text, None))) if role is not None and isinstance(text, str) and text.strip() else None

    def _full(self, message: Mapping[str, Any], where: str, images: Images) -> Turn:
        role = role_at(message, self.role_key, self.roles, where)
        weight = loss_weight_of(message, where)
        place = f"{where}.{self.content_key}"
        content = _content(message, message.get(self.content_key), where)
        if self.call_tag is not None and message.get(self.role_key) == self.call_tag:
            regions = [Region(TOOL_CALL, text, weight) for text in call_texts(content, place)]
        else:
            regions = content_regions(content, place, weight, images)
        regions = [*reasoning_regions(message, where, weight), *regions, *_tool_calls(message, where, weight)]
        _require_content(role, regions, place)
        name, call_id = (_optional(message, key, where) for key in ("name", "tool_call_id"))
        return Turn(role, tuple(regions) or (Region(TEXT, "", weight),), name, call_id)


def _content(message: Mapping[str, Any], content: object, where: str) -> object:
    """The content, or OpenAI's ``refusal`` in its place. An answer that is only begun (Mistral's ``prefix``) is refused."""
    if message.get("prefix"):
        raise Refused("open_prefix", f"{where} is the beginning of an answer, which a model continues; there is no answer to train")
    if not has_content(refusal := message.get("refusal")):
        return content
    if has_content(content):
        raise Refused("conflicting_content", f"{where} has both a content and a refusal")
    return as_text(refusal, f"{where}.refusal")


def _tool_calls(message: Mapping[str, Any], where: str, weight: float | None) -> list[Region]:
    given = {key: call_texts(message[key], f"{where}.{key}") for key in CALLS if has_content(message.get(key))}
    if len(given) > 1:
        raise Refused("bad_tool_call", f"{where} has calls under {' and '.join(given)}")
    return [Region(TOOL_CALL, text, weight) for texts in given.values() for text in texts]


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
        made += [found for region in turn.regions if region.kind == TOOL_CALL and (found := call_id(region.text)) is not None]


def _optional(message: Mapping[str, Any], key: str, where: str) -> str | None:
    value = message.get(key)
    return None if value is None else as_text(value, f"{where}.{key}")
