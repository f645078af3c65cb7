"""Two chat templates for one model: which kinds of chat they render or mask differently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from prep_assets.errors import Refused
from prep_assets.samples import Sample
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.probes import PROBES
from prep_assets.templates.rendering import Rendered, render
from prep_assets.tokenization.encode import Encoder

CONTEXT = 30
"""Characters shown before and after the first difference."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two templates do with one kind of chat.

    Attributes:
        chat: the kind, of `PROBES`, or ``generation prompt``.
        outcome: ``equal``; ``refused`` by both; or what differs first: ``text``, ``mask``, or that one of them refuses.
        first, second: where they differ, what each has there.
    """

    chat: str
    outcome: Literal["equal", "refused", "text", "mask", "one refuses"]
    first: str = ""
    second: str = ""

    @property
    def differs(self) -> bool:
        """Whether they part."""
        return self.outcome not in ("equal", "refused")

    def as_dict(self) -> dict[str, Any]:
        """All fields, as JSON."""
        return asdict(self)


def compare(first: ChatTemplate, second: ChatTemplate, encoder: Encoder) -> Iterator[Comparison]:
    """Compare them on every probe. Both are rendered for the tokenizer of `encoder`, whose policy says what is trained."""
    both = (first, second)
    asked = Sample(PROBES["plain"].turns[:-1])
    yield _compared("generation prompt", [_rendered(template, asked, prompt=True) for template in both], None)
    for chat, sample in PROBES.items():
        yield _compared(chat, [_rendered(template, sample) for template in both], encoder)


def _rendered(template: ChatTemplate, sample: Sample, *, prompt: bool = False) -> Rendered | Refused:
    try:
        return render(sample, template, generation_prompt=prompt)
    except Refused as refusal:
        return refusal


def _compared(chat: str, found: list[Rendered | Refused], encoder: Encoder | None) -> Comparison:
    texts = [each.text for each in found if isinstance(each, Rendered)]
    if len(texts) < 2:
        shown = [f"refuses: {each}" if isinstance(each, Refused) else "renders" for each in found]
        return Comparison(chat, "one refuses" if texts else "refused", *shown)
    if texts[0] != texts[1]:
        return Comparison(chat, "text", *_apart(*texts))
    if encoder is None:
        return Comparison(chat, "equal")
    return _masks(chat, [each for each in found if isinstance(each, Rendered)], encoder)


def _masks(chat: str, both: list[Rendered], encoder: Encoder) -> Comparison:
    encoded = [encoder.encode([each]) for each in both]
    refusals = [[str(refusal) for _, refusal in each.refused] for each in encoded]
    if any(refusals):
        shown = [f"refuses: {each[0]}" if each else "renders" for each in refusals]
        return Comparison(chat, "refused" if all(refusals) else "one refuses", *shown)
    differing = np.flatnonzero(encoded[0].loss != encoded[1].loss)
    if not len(differing):
        return Comparison(chat, "equal")
    at = int(differing[0])
    decode = encoder.vocabulary.backend.decode
    around = decode(encoded[0].ids[max(0, at - 5) : at + 6].tolist(), skip_special_tokens=False)
    token = decode([int(encoded[0].ids[at])], skip_special_tokens=False)
    words = [f"{'trains' if each.loss[at] else 'masks'} token {at}, {token!r}, in {around!r}" for each in encoded]
    return Comparison(chat, "mask", *words)


def _apart(first: str, second: str) -> tuple[str, str]:
    """Both texts around the place where they part."""
    at = next(i for i, (a, b) in enumerate(zip_longest(first, second)) if a != b)
    return repr(first[max(0, at - CONTEXT) : at + CONTEXT]), repr(second[max(0, at - CONTEXT) : at + CONTEXT])
