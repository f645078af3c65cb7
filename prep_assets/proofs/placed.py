"""The second derivation of a conversation with images: first with one token for each, as the template writes it, then with what the processor writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from prep_assets.errors import CheckFailed
from prep_assets.proofs.stretches import Derived, Range, pattern
from prep_assets.samples import Region

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate


def with_placeholders(derived: Derived, images: Sequence[Region], template: ChatTemplate) -> Derived:
    """`derived` with the placeholder of each image, in the order in which they stand.

    Raises:
        CheckFailed: the template writes the token of images more or less often than there are images.
    """
    mark, control = template.image_token, pattern(template)
    marks = [where for where in derived.controls if derived.text[slice(*where)] == mark]
    if len(marks) != len(images):
        raise CheckFailed(f"template {template.name} writes {mark!r} {len(marks)} times for {len(images)} images, so nothing is proven")
    text, last = "", 0
    steps: list[tuple[int, int]] = []
    inside: dict[Range, list[Range]] = {}
    for (start, end), region in zip(marks, images, strict=True):
        text += derived.text[last:start]
        written = region.placeholder or template.image
        inside[start, end] = [(len(text) + low, len(text) + high) for low, high in (each.span() for each in control.finditer(written))]
        text, last = text + written, end
        steps.append((end, len(text) - end))
    text += derived.text[last:]

    def now(at: int) -> int:
        return at + next((shift for end, shift in reversed(steps) if end <= at), 0)

    return replace(
        derived,
        text=text,
        expected=tuple(
            replace(each, text=text[now(each.start) : now(each.end)], start=now(each.start), end=now(each.end)) for each in derived.expected
        ),
        controls=tuple(new for old in derived.controls for new in inside.get(old, [(now(old[0]), now(old[1]))])),
        shortenable=tuple((now(start), now(end), role) for start, end, role in derived.shortenable),
    )
