"""The mark of a file in a template's render → the placeholder that a processor writes for the file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

from prep_assets.text.spans import Rendered


def expanded(rendered: Rendered, marks: Mapping[str, str], image: str) -> Rendered:
    """`rendered` with the placeholder of each file instead of its mark. White space at the ends of a placeholder is not part of the file.

    Args:
        marks: the text of each kind in the render.
        image: the placeholder of images whose region has none.
    """
    texts = [region.placeholder or image for _, _, region in rendered.images]
    written = [marks[region.kind] for _, _, region in rendered.images]
    if texts == written:
        return rendered
    ends = [end for _, end, _ in rendered.images]
    growth = [0, *accumulate(len(text) - len(mark) for text, mark in zip(texts, written, strict=True))]

    def move(at: int) -> int:
        """The new position of a border; the end of an image moves behind its placeholder."""
        return at + growth[bisect_right(ends, at)]

    marked = zip([0, *ends], ends, written, texts, strict=False)
    parts = [rendered.text[low : end - len(mark)] + text for low, end, mark, text in marked]
    images = []
    for (_, end, region), text in zip(rendered.images, texts, strict=True):
        lead = len(text) - len(text.lstrip())
        images.append((move(end) - len(text) + lead, move(end) - len(text) + len(text.rstrip()), region))
    return replace(
        rendered,
        text="".join([*parts, rendered.text[ends[-1] :]]),
        spans=tuple(
            replace(span, start=move(span.start), end=move(span.end), header=move(span.header) if span.header >= 0 else -1)
            for span in rendered.spans
        ),
        content=tuple((move(start), move(end)) for start, end in rendered.content),
        stops=tuple(replace(stop, start=move(stop.start), end=move(stop.end)) for stop in rendered.stops),
        images=tuple(images),
    )
