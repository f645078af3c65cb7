"""Rejections by a chat template, judged by renders of the reference: transformers' Jinja, with messages that are built here."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from prep_assets.errors import CheckFailed
from prep_assets.proofs.rebuilt import Rebuilder, Rebuilt, render_again
from prep_assets.samples import ASSISTANT, MEDIA, THINKING, TOOL_CALL, Sample, changed
from prep_assets.stores.files import dumps

if TYPE_CHECKING:
    from prep_assets.text.template import ChatTemplate

_DROPPED = {"template_drops_tools": "tools", "template_drops_documents": "documents", "template_drops_names": "turns"}
_NO_TEXT = re.compile("[\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def ruling(reason: str, sample: Sample, template: ChatTemplate, *, prompted: bool = False) -> str | None:
    """Judge a chat that a build rejects when it renders it; `prompted`: with the generation prompt. Returns ``""`` where the reference shows the same fault,
    `None` where it cannot tell, else why the chat is right."""
    if reason in ("noncharacter", "lone_surrogate"):
        return "" if any(_NO_TEXT.search(region.text) for turn in sample.turns for region in turn.regions) else None
    if absent := {region.kind for turn in sample.turns for region in turn.regions if region.kind in MEDIA and not region.drop} - {
        *template.marks
    }:
        return "" if reason in {f"no_{kind}_token" for kind in absent} else None
    try:
        text = render_again(sample, template, prompted=prompted)
    except CheckFailed:
        return "" if reason == "template_refuses" else None
    if reason == "template_refuses":
        return None if template.renderer is not None else "transformers renders it"  # of two implementations either may refuse a chat
    if reason == "unknown_template_option":
        return _without_each_option(sample, template, text, prompted)
    if reason in _DROPPED:
        return _dropped(reason, sample, template, text, prompted)
    if reason == "template_drops_content" and any(not _stands(words, text) for words in _texts(sample)):
        return ""
    try:
        rebuilt = Rebuilder(template).rebuild(sample, prompted=prompted)
    except CheckFailed:
        return "" if reason == "template_rewrites_content" else None
    if reason == "template_drops_content":
        return "transformers renders it, and every text stands in it once" if _all_once(rebuilt, template) else None
    if reason == "template_reorders_content":
        return "transformers renders it, with its texts in their order" if _all_once(rebuilt, template) and _in_order(rebuilt) else None
    if reason == "mask_not_provable" and template.renderer is None and (by := _mask(rebuilt)):
        return f"transformers renders it, and {by} say what is trained"
    return None


def _dropped(reason: str, sample: Sample, template: ChatTemplate, text: str, prompted: bool) -> str | None:
    """Judge a chat whose tools, documents or names are said not to be shown."""
    without: Any = () if reason != "template_drops_names" else tuple(changed(turn, name=None) for turn in sample.turns)
    try:
        if render_again(changed(sample, **{_DROPPED[reason]: without}), template, prompted=prompted) == text:
            return ""
    except CheckFailed:
        return None
    if reason != "template_drops_tools":
        return None
    return (
        "transformers renders it, with names and descriptions of all tools"
        if all(_stands(each, text) for each in _said(sample.tools))
        else ""
    )


def _without_each_option(sample: Sample, template: ChatTemplate, text: str, prompted: bool) -> str | None:
    """Judge a chat with options that are said to have no effect: each has one where the chat is written otherwise without it."""
    options = sample.template_options
    if options.keys() & template.options.keys():
        return None
    try:
        left = [changed(sample, template_options={key: options[key] for key in options if key != name}) for name in options]
        others = [render_again(each, template, prompted=prompted) for each in left]
    except CheckFailed:
        return None
    return "transformers writes it otherwise without its options" if others and text not in others else None


def _said(value: Any) -> Iterator[str]:
    """Yield names and descriptions in descriptions of tools."""
    if isinstance(value, dict):
        yield from (value[key] for key in ("name", "description") if isinstance(value.get(key), str))
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from _said(inner)


def _texts(sample: Sample) -> Iterator[str]:
    """Yield the texts of a chat that a template may not leave out."""
    for turn in sample.turns:
        yield from (region.text for region in turn.regions if region.kind not in (THINKING, TOOL_CALL, *MEDIA) and not region.drop)


def _stands(words: str, text: str) -> bool:
    """Whether a text stands in a render, as it is or inside JSON."""
    return any(written in text for written in (words.strip(), dumps(words.strip())[1:-1], json.dumps(words.strip())[1:-1]))


def _all_once(rebuilt: Rebuilt, template: ChatTemplate) -> bool:
    """Whether each text has one place, but for empty ones. A call may be repeated with its result, and reasoning left out by a template that shows it
    elsewhere; images are counted by the build alone."""
    counts = Counter(place.slot for place in rebuilt.places)
    hidden = THINKING if template.form.shows_reasoning else None
    is_once = all(
        counts[number] == 1 or not slot.text or slot.kind == (TOOL_CALL if counts[number] else hidden)
        for number, slot in enumerate(rebuilt.slots)
    )
    return is_once and not any(region.kind in MEDIA for turn in rebuilt.sample.turns for region in turn.regions)


def _in_order(rebuilt: Rebuilt) -> bool:
    """Whether texts stand in the order of turns, and of the regions of a turn."""
    slots = (rebuilt.slots[place.slot] for place in rebuilt.places)
    return all(before < after for before, after in pairwise((slot.turn, slot.parts[0][0]) for slot in slots))


def _mask(rebuilt: Rebuilt) -> str:
    """Return what gives the mask of a chat; ``""`` where nothing does."""
    if rebuilt.tagged:
        return "the generation tags of its template"
    try:
        answers = [rebuilt.shape.generated_from(block) for block in rebuilt.shape.blocks if block.role == ASSISTANT]
    except CheckFailed:
        return ""
    return "the renders before and after each answer" if answers and None not in answers else ""
