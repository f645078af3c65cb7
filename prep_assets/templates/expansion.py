"""The one token that stands for an image in a template's render → what the model's processor writes for that image."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate

from prep_assets.templates.rendered import Rendered


def expanded(rendered: Rendered, mark: str, image: str) -> Rendered:
    """`rendered` with the placeholder of each image in place of its mark. White space at the ends of a placeholder is the template's: an image
    begins with its first token and ends with its last.

    Args:
        mark: what stands for each image in the render.
        image: the placeholder of images that have none of their own.
    """
    texts = [region.placeholder or image for _, _, region in rendered.images]
    if all(text == mark for text in texts):
        return rendered
    ends = [end for _, end, _ in rendered.images]
    grown = [0, *accumulate(len(text) - len(mark) for text in texts)]

    def moved(at: int) -> int:
        """Where a border is now: at the end of an image it is behind its placeholder."""
        return at + grown[bisect_right(ends, at)]

    parts = [rendered.text[low : end - len(mark)] + text for low, end, text in zip([0, *ends], ends, texts, strict=False)]
    images = []
    for (_, end, region), text in zip(rendered.images, texts, strict=True):
        lead = len(text) - len(text.lstrip())
        images.append((moved(end) - len(text) + lead, moved(end) - len(text) + len(text.rstrip()), region))
    return replace(
        rendered,
        text="".join([*parts, rendered.text[ends[-1] :]]),
        spans=tuple(replace(span, start=moved(span.start), end=moved(span.end)) for span in rendered.spans),
        content=tuple((moved(start), moved(end)) for start, end in rendered.content),
        stops=tuple(replace(stop, start=moved(stop.start), end=moved(stop.end)) for stop in rendered.stops),
        images=tuple(images),
    )
