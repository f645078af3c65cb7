"""`encoder:deepseek-v4`: DeepSeek V4, whose model folder has a Python file in place of a chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.extensions.encoders import tinker
from prep_assets.extensions.encoders.formats import Format, Interval, Messages, Options, intervals

_TOKENS = ("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜")
_PROMPTS = ("<｜Assistant｜><think>", "<｜Assistant｜></think>")
_FIRST_SPECIAL = 0x110000


class _Texts:
    """A tokenizer whose tokens are control tokens and whole texts, so that `renderers` only writes."""

    eos_token_id, unk_token_id, name_or_path = None, None, ""

    def __init__(self) -> None:
        self._texts, self._ids, self._next = dict[int, str](), dict[str, int](), count(_FIRST_SPECIAL)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """The id of a text: one of a control token for good, any other until `forget`."""
        if text not in self._ids:
            self._ids[text] = next(self._next)
            self._texts[self._ids[text]] = text
        return [self._ids[text]]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """The texts of ids."""
        return "".join([self._texts[number] for number in ids])

    def forget(self, most: int) -> None:
        """Forget texts, but not the first `most`, which a renderer has asked for when it was made."""
        for number in [number for number in self._texts if number >= _FIRST_SPECIAL + most]:
            del self._ids[self._texts.pop(number)]

    def __len__(self) -> int:
        return len(self._texts)


class _Characters(_Texts):
    """A tokenizer whose tokens are control tokens and characters, so that every character has its marks."""

    def __call__(self, text: str, **_: Any) -> Mapping[str, Sequence[Any]]:
        """Ids and places of characters."""
        return {"input_ids": [*map(ord, text)], "offset_mapping": [(at, at + 1) for at in range(len(text))]}

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """The text of ids."""
        return "".join([self._texts[number] if number >= _FIRST_SPECIAL else chr(number) for number in ids])


@bounded_cache("renderers of DeepSeek V4", 8)
def _renderer(kind: type[_Texts], thinking: bool, effort: str) -> tuple[Any, _Texts, int]:
    from renderers.configs import DeepSeekV4RendererConfig
    from renderers.deepseek_v4 import DeepSeekV4Renderer

    tokenizer = kind()
    renderer = DeepSeekV4Renderer(tokenizer, DeepSeekV4RendererConfig(enable_thinking=thinking, reasoning_effort=effort))
    return renderer, tokenizer, len(tokenizer)


def _rendered(
    kind: type[_Texts], messages: Messages, tools: Sequence[Any], options: Options, prompted: bool
) -> tuple[str, tuple[Interval, ...]]:
    renderer, tokenizer, known = _renderer(kind, options.get("enable_thinking", False), options.get("reasoning_effort", "low"))
    try:
        rendered = renderer.render(list(messages), tools=list(tools) or None, add_generation_prompt=prompted)
        # answers may touch, so each is marked by its number
        numbered = zip(rendered.message_indices, rendered.sampled_mask, strict=True)
        return intervals(tokenizer.decode, rendered.token_ids, [message + 1 if sampled else 0 for message, sampled in numbered])
    finally:
        tokenizer.forget(known)


def _write(messages: Messages, tools: Sequence[Any], options: Options, prompted: bool) -> str:
    return _rendered(_Texts, messages, tools, options, prompted)[0]


def _mark(messages: Messages, tools: Sequence[Any], options: Options, prompted: bool) -> tuple[str, tuple[Interval, ...]]:
    return _rendered(_Characters, messages, tools, options, prompted)


@bounded_cache("second renderers of DeepSeek V4", 8)
def _second(thinking: bool, effort: str) -> Any:
    from tml_renderers.renderers import DeepSeekV4

    return DeepSeekV4(effort if thinking else None, "official", "thinking" if thinking else "chat")


def _again(messages: Messages, tools: Sequence[Any], options: Options, prompted: bool) -> str:
    renderer = _second(options.get("enable_thinking", False), options.get("reasoning_effort", "low"))
    return tinker.written(renderer, messages, tools, prompted, _PROMPTS)


FORMAT = Format(
    "deepseek-v4",
    _TOKENS,
    {"enable_thinking": (False, True), "reasoning_effort": ("low", "high", "max")},
    ("renderers", "tml_renderers"),
    _write,
    _again,
    _mark,
    ("a second implementation, tml-renderers", "what renderers marks as sampled"),
)
