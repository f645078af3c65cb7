"""How a template writes chats of one shape: learned as the layouts of plain chats are, with invented tools and arguments beside invented words.

A template may write the JSON of a tool or of arguments, or go through arguments and write them one by one, and nothing else of them: any look into one
leaves such chats to the template.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prep_assets.errors import Refused
from prep_assets.samples import Sample
from prep_assets.templates.answers import left_out
from prep_assets.templates.arguments import MOST_ITEMS, one_by_one, one_of_each, some_of_each
from prep_assets.templates.conversation import messages, pieces
from prep_assets.templates.layouts import SORTS, Layout, is_between_words, joined_calls, outline
from prep_assets.templates.questions import Questions, word
from prep_assets.templates.rendered import Rendered
from prep_assets.templates.rendering import render
from prep_assets.templates.shapes import Shape, json_of

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate


def shaped_layout(shape: Shape, template: ChatTemplate) -> tuple[Layout, set[str]] | None:
    """The layout, and the strings that the template looks for in texts; `None` where the template has to render chats of this shape."""
    words = [word(number) for number in range(shape.size)]
    try:
        texts = shape.texts(words, lambda each: {each: each})
        rendered, asked = _watched(shape, texts, template)
        if asked.goes_through:
            texts = shape.texts(words, one_of_each)
            rendered, asked = _watched(shape, texts, template)
        layout = None if asked.open else _taken(shape, words, texts, asked, rendered, template.control)
        if layout is None or not is_between_words(layout):
            return None
        layout = replace(layout, left_out=left_out(shape.sample(texts), layout.words))
        others = shape.texts([f"{each}{SORTS}{each}" for each in words], _sorts)
        if outline(layout.render(others)) != outline(render(shape.sample(others), template)):
            return None
        if asked.goes_through and not all(_writes_so_many(layout, shape, words, count, template) for count in range(1, MOST_ITEMS + 1)):
            return None
    except Refused:
        return None
    return layout, asked.needles


def _watched(shape: Shape, texts: Sequence[str], template: ChatTemplate) -> tuple[Rendered, Questions]:
    """A chat rendered, and what the template asks of its texts; open where it then renders otherwise."""
    sample = shape.sample(texts)
    rendered = render(sample, template)
    found, asked = template.watched(_messages(sample, template), sample.tools)
    if found != rendered.text:
        asked.cannot_tell("another render under watch")
    return rendered, asked


def _messages(sample: Sample, template: ChatTemplate) -> list[dict[str, Any]]:
    return messages(sample, pieces(sample, form=template.form), "none", template.form)


def _writes_so_many(layout: Layout, shape: Shape, words: Sequence[str], count: int, template: ChatTemplate) -> bool:
    """Whether calls with so many arguments are written as the template writes them."""
    texts = shape.texts(words, lambda each: some_of_each(each, count))
    sample = shape.sample(texts)
    return layout.render(texts).text == template.render(_messages(sample, template), tools=sample.tools)


def _taken(
    shape: Shape, words: list[str], texts: list[str], asked: Questions, rendered: Rendered, control: tuple[str, ...]
) -> Layout | None:
    """The layout of a render, if each text stands in it once, or not at all where it is one that a template may leave out."""
    text = rendered.text
    places: list[tuple[int, int, int]] = []
    spelled: dict[int, Callable[[str], str]] = {}
    for number, (each, own) in enumerate(zip(words, texts, strict=True)):
        if asked.goes_through and number in shape.json and number >= shape.tools:
            if (found := one_by_one(text, each, asked, control)) is None:
                return None
            spelled[number], start, end = found
            places.append((start, end, number))
            continue
        shown = next((found for found in asked.written if each in found), own) if number in shape.json else own
        if each in asked.quoted:
            spelled[number] = _within_quotes
        elif shown in asked.written and (spell := _spelling(asked.written[shown])) is not None:
            spelled[number] = spell
        # reasoning, names of tools and ids may be left out: the render of a chat that loses anything else is refused
        if text.count(each) == 0 and number >= shape.tools:
            continue
        if text.count(shown) != 1 or text.count(each) != shown.count(each):
            return None
        start = text.index(shown)
        places.append((start, start + len(shown), number))
    places.sort()
    ends = tuple(end for _, end, _ in places)
    order = tuple(number for _, _, number in places)
    frames = tuple(text[left:right] for left, right in zip((0, *ends), (*(start for start, _, _ in places), None), strict=True))
    ways = tuple(spelled.get(number) for number in order)
    return Layout(frames, order, ((False, False),) * len(order), True, joined_calls(rendered), ends, ways)


def _within_quotes(text: str) -> str:
    return json_of(text)[1:-1]


def _spelling(write: Callable[[Any], str]) -> Callable[[str], str] | None:
    """How a template writes JSON; `None` where that is how it is written in columns."""
    return None if write(_sorts("")) == json_of(_sorts("")) else lambda text: write(json.loads(text))


def _sorts(each: str) -> dict[str, Any]:
    """JSON of every sort."""
    return {"z": each, "a": [SORTS, -1.5e-7, 10**20, True, None, {"": [], "a/b": {}, "\u2028\x7f": "'"}, each]}
