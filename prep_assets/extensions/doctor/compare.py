"""Comparison of two chat templates: the kinds of chat that they render or mask differently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from prep_assets.errors import Refused
from prep_assets.samples import Sample
from prep_assets.text.certify import CONTEXT, PROBES, try_render
from prep_assets.text.encode import Encoder
from prep_assets.text.spans import Rendered
from prep_assets.text.template import ChatTemplate, common_length


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two templates render one kind of chat.

    Attributes:
        chat: the kind, of `PROBES`, or ``generation prompt``.
        outcome: ``equal``; ``refused`` by both; or what differs first: ``text``, ``mask``, or that only one rejects it.
        first, second: what each has at the difference.
    """

    chat: str
    outcome: Literal["equal", "refused", "text", "mask", "one refuses"]
    first: str = ""
    second: str = ""

    @property
    def differs(self) -> bool:
        """Whether the two differ."""
        return self.outcome not in ("equal", "refused")

    def as_dict(self) -> dict[str, Any]:
        """All fields, as JSON."""
        return asdict(self)


def compare(first: ChatTemplate, second: ChatTemplate, encoder: Encoder) -> Iterator[Comparison]:
    """Compare two templates on every probe. The tokenizer and the mask policy are those of `encoder`."""
    templates = (first, second)
    question = Sample(PROBES["plain"].turns[:-1])
    yield _compare_renders("generation prompt", [try_render(template, question, prompt=True) for template in templates], None)
    for chat, sample in PROBES.items():
        yield _compare_renders(chat, [try_render(template, sample) for template in templates], encoder)


def _compare_renders(chat: str, outcomes: list[Rendered | Refused], encoder: Encoder | None) -> Comparison:
    renders = [outcome for outcome in outcomes if isinstance(outcome, Rendered)]
    if len(renders) < 2:
        descriptions = [f"refuses: {outcome}" if isinstance(outcome, Refused) else "renders" for outcome in outcomes]
        return Comparison(chat, "one refuses" if renders else "refused", *descriptions)
    first, second = (rendered.text for rendered in renders)
    if first != second:
        at = common_length(first, second)
        return Comparison(chat, "text", *(repr(text[max(0, at - CONTEXT) : at + CONTEXT]) for text in (first, second)))
    if encoder is None:
        return Comparison(chat, "equal")
    encoded = [encoder.encode([rendered]) for rendered in renders]
    rejections = [[str(rejection) for _, rejection in batch.refused] for batch in encoded]
    if any(rejections):
        descriptions = [f"refuses: {reasons[0]}" if reasons else "renders" for reasons in rejections]
        return Comparison(chat, "refused" if all(rejections) else "one refuses", *descriptions)
    differing = np.flatnonzero(encoded[0].loss != encoded[1].loss)
    if not len(differing):
        return Comparison(chat, "equal")
    at, ids = int(differing[0]), encoded[0].ids
    decode = encoder.vocabulary.backend.decode
    context, token = (decode(window.tolist(), skip_special_tokens=False) for window in (ids[max(0, at - 5) : at + 6], ids[at : at + 1]))
    return Comparison(
        chat, "mask", *(f"{'trains' if batch.loss[at] else 'masks'} token {at}, {token!r}, in {context!r}" for batch in encoded)
    )
