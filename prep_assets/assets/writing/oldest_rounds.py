"""Truncation by turns: a conversation that is too long is rendered anew without its oldest rounds."""

from __future__ import annotations

from collections.abc import Callable

from prep_assets.errors import Refused
from prep_assets.samples import Sample
from prep_assets.templates.rendering import Rendered
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.truncation import rounds, without_oldest_rounds


def without_too_many(sample: Sample, whole: Rendered, render: Callable[[Sample], Rendered], encoder: Encoder) -> Rendered:
    """The render with as few of the oldest rounds left out as makes it fit; the whole one where nothing does."""
    few, many = 1, len(rounds(sample)) - 1
    found = whole
    while few <= many:
        count = (few + many) // 2
        try:
            shorter = render(without_oldest_rounds(sample, count))
        except Refused:
            return whole
        if not any(refusal.reason == "too_long" for _, refusal in encoder.encode([shorter]).refused):
            found, many = shorter, count - 1
        else:
            few = count + 1
    return found
