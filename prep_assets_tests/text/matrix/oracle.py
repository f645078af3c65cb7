"""What a template makes of a chat and what of it is to be trained, from transformers' own rendering and the published format; none of our code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from prep_assets.samples import IMAGE, THINKING, TOOL_CALL, Sample
from prep_assets_tests.text.matrix.chats import Kind, Message
from prep_assets_tests.text.matrix.models import Model


@dataclass(frozen=True)
class Reference:
    """A render: its text, ids and the mask that the published format asks for."""

    text: str
    ids: list[int]
    mask: list[int]
    messages: list[Message]


@cache
def tokenizer(control: tuple[str, ...], special: tuple[tuple[str, str], ...]) -> Any:
    """One token for every byte, and one for each control token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in dict.fromkeys([*control, *dict(special).values()])]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, **dict(special))


def of(model: Model) -> Any:
    return tokenizer(model.control, tuple(model.special.items()))


def reference(source: str, model: Model, kind: Kind) -> Reference | None:
    """The render of the first form of messages in which the template shows the whole chat; `None` where there is none."""
    _freeze_clock(source)
    for messages in _forms(kind.messages, model.image):
        try:
            text = of(model).apply_chat_template(messages, tools=list(kind.tools) or None, chat_template=source, tokenize=False)
        except Exception:  # a template may fail in any way
            continue
        if shows(text, kind.sample, model):
            return _reference(text, model, messages)
    return None


def _reference(text: str, model: Model, messages: list[Message]) -> Reference:
    encoded = of(model)(text, add_special_tokens=False, return_offsets_mapping=True)
    spans = [found.span("t") for found in model.generated.finditer(text)]
    mask = [int(any(start <= low < end for start, end in spans)) for low, _ in encoded["offset_mapping"]]
    return Reference(text, encoded["input_ids"], mask, messages)


def _freeze_clock(source: str) -> None:
    from transformers.utils.chat_template_utils import _compile_jinja_template

    _compile_jinja_template(source).globals["strftime_now"] = datetime(2024, 7, 26).strftime


def _forms(messages: Sequence[Message], image: str) -> Iterator[list[Message]]:
    """The messages in every form that some template reads; transformers itself offers reasoning under each of its names."""
    if not messages:
        return
    has_images = any(isinstance(message["content"], list) for message in messages)
    for in_parts in (True,) if has_images else (False, True):
        for as_text in (False, True):
            listed = []
            for message in messages:
                form = dict(message)
                if in_parts and isinstance(form["content"], str):
                    form["content"] = [{"type": "text", "text": form["content"]}]
                if as_text and "tool_calls" in form:
                    form["tool_calls"] = [
                        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
                        for call in form["tool_calls"]
                    ]
                listed.append(form)
            yield listed
    if has_images:
        yield [{**message, "content": _joined(message["content"], image)} for message in messages]


def _joined(content: Any, image: str) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", image) for part in content)


def shows(text: str, sample: Sample, model: Model) -> bool:
    """Whether all of a chat stands in its render, each turn's parts in order; reasoning only where it is the last turn's, which history may
    leave out."""
    if re.search(r"""["']type["']: ["'](text|image)["']""", text):  # a list of parts, written out
        return False
    if any(tool["function"]["description"] not in text for tool in sample.tools):
        return False
    if sum(region.kind == IMAGE for turn in sample.turns for region in turn.regions) != (text.count(model.image) if model.image else 0):
        return False
    reached = 0
    for number, turn in enumerate(sample.turns):
        at = 0 if turn.role == "system" else reached  # a system turn may stand anywhere
        for region in turn.regions:
            if region.kind == THINKING and number < len(sample.turns) - 1:
                continue
            for part in _texts(region.kind, region.text, model):
                found = text.find(part, at)
                if found < 0:
                    return False
                at = found + len(part)
        reached = reached if turn.role == "system" else at
    return True


def _texts(kind: str, text: str, model: Model) -> list[str]:
    if kind == TOOL_CALL:
        call = json.loads(text)
        return [call["name"], *call["arguments"].values()]
    return [model.image] if kind == IMAGE else [text]


def tagged(source: str, model: Model, kind: Kind, expected: Reference) -> list[int] | None:
    """transformers' mask of what stands in generation tags; `None` where the template renders this chat otherwise."""
    encoded = of(model).apply_chat_template(
        expected.messages, tools=list(kind.tools) or None, chat_template=source, return_dict=True, return_assistant_tokens_mask=True
    )
    return encoded["assistant_masks"] if encoded["input_ids"] == expected.ids else None


def disagreement(model: Model, expected: Reference, tags: Sequence[int]) -> str:
    """Characters on which the tags and the published format differ, but for headers and white space between turns; ``""`` where they agree."""
    given = [(found.start(), found.start("t")) for found in model.generated.finditer(expected.text)]
    offsets: Sequence[tuple[int, int]] = of(model)(expected.text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    found = []
    for (low, high), ours, theirs in zip(offsets, expected.mask, tags, strict=True):
        is_header = any(start <= low < end for start, end in given) or expected.text[low:high].isspace()
        if ours != theirs and not (theirs and is_header) and expected.text[low:high] not in model.debated:
            found.append(expected.text[low:high])
    return "".join(found)
