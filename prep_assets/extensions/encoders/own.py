"""`encoder:package.module:function`: a vendor's encoder, called by a function of the user's, which must write the vendor's own chats."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from prep_assets.errors import TemplateError
from prep_assets.extensions.encoders.formats import Format, Messages, Options
from prep_assets.own_code import own_code_hash, own_function

_LOADED: dict[str, str | None] = {}
_GIVEN = ("messages", "tools", "generation_prompt")


def format_of(path: str) -> Format:
    """The format of the user's function ``package.module:function``.

    Raises:
        TemplateError: its module lacks `TOKENS` or `GOLDEN`; these chats have no answer or no generation prompt; or the function writes one otherwise.
    """
    code, label = own_code_hash(path), f"template encoder:{path}"
    if _LOADED.setdefault(path, code) != code:
        raise TemplateError(f"{label}: its code has changed since this process loaded it. Start again")
    function = own_function("template", path)
    module = importlib.import_module(path.rpartition(":")[0])
    tokens, golden = tuple(getattr(module, "TOKENS", ())), list(getattr(module, "GOLDEN", ()))
    if not tokens:
        raise TemplateError(f"{label}: its module has no TOKENS, the control tokens that it writes, the one that ends answers first")
    if not golden:
        raise TemplateError(
            f"{label}: its module has no GOLDEN, pairs of arguments and text as the vendor publishes them. Nothing else says that the code is right"
        )
    _check_golden(label, [given for given, _ in golden])
    parameters = inspect.signature(function).parameters
    if [*parameters][:3] != [*_GIVEN]:
        raise TemplateError(
            f"{label} takes {', '.join(parameters) or 'nothing'}, and must take {', '.join(_GIVEN)}, then options with defaults"
        )

    def write(messages: Messages, tools: Any, options: Options, prompted: bool) -> str:
        text = function(deepcopy(list(messages)), deepcopy(list(tools)), prompted, **options)
        if not isinstance(text, str):
            raise TypeError(f"it gives {type(text).__name__}, and must give the text of the chat")
        return text

    for number, (given, wanted) in enumerate(golden):
        rest = {name: value for name, value in given.items() if name not in _GIVEN}
        try:
            text = write(given["messages"], given.get("tools", ()), rest, given.get("generation_prompt", False))
        except Exception as error:  # code of one's own may raise anything
            raise TemplateError(f"{label}: chat {number + 1} of {len(golden)} in GOLDEN: {type(error).__name__}: {error}") from error
        if text != wanted:
            at = next((at for at, (one, other) in enumerate(zip(text, wanted, strict=False)) if one != other), min(len(text), len(wanted)))
            raise TemplateError(
                f"{label}: chat {number + 1} of {len(golden)} in GOLDEN: character {at:,}: it writes …{text[max(0, at - 30) : at + 30]!r}…, and the "
                f"vendor …{wanted[max(0, at - 30) : at + 30]!r}…"
            )
    options: dict[str, tuple[Any, ...]] = dict.fromkeys([*parameters][3:], ())
    said = (f"{len(golden)} golden chats of its vendor",)
    return Format(path, tokens, options, (), write, write, None, said, (f"{path} {code}",))


def _check_golden(label: str, golden: Sequence[Mapping[str, Any]]) -> None:
    """Raise where no golden chat holds a whole answer, or none a generation prompt: without them nothing says where answers end, or begin."""
    asked = [chat for chat in golden if chat.get("generation_prompt")]
    ended = [
        chat for chat in golden if not chat.get("generation_prompt") and [{}, *chat.get("messages", ())][-1].get("role") == "assistant"
    ]
    if not ended:
        raise TemplateError(
            f"{label}: none of the {len(golden)} chats in GOLDEN ends with an answer, so nothing says how an answer is written and ends"
        )
    if not asked:
        raise TemplateError(
            f"{label}: none of the {len(golden)} chats in GOLDEN has generation_prompt: True, so nothing says where an answer begins. Cut one from a "
            "published chat: {'messages': the messages before its last answer, 'generation_prompt': True}, and the text before the first word of the answer"
        )
