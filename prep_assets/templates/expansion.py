"""One image token of a template → one for each patch of the image, as a model's processor writes them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.rendered import Rendered


def expanded(rendered: Rendered, template: ChatTemplate) -> Rendered:
    """`rendered` with `template.image` wherever the template wrote its own single image token."""
    grown = len(template.image) - len(template.image_token)
    ends = [end for start, end, _ in rendered.images if end - start == len(template.image_token)]
    if not grown or not ends:
        return rendered
    parts = [rendered.text[low:high] for low, high in zip([0, *ends], [*ends, len(rendered.text)], strict=True)]
    more = template.image[len(template.image_token) :]

    def moved(at: int) -> int:
        """Where a border is now: at the end of an image it is behind all of its patches."""
        return at + grown * bisect_right(ends, at)

    return replace(
        rendered,
        text=more.join(parts),
        spans=tuple(replace(span, start=moved(span.start), end=moved(span.end)) for span in rendered.spans),
        content=tuple((moved(start), moved(end)) for start, end in rendered.content),
        stops=tuple(replace(stop, start=moved(stop.start), end=moved(stop.end)) for stop in rendered.stops),
        images=tuple((moved(start), moved(end), path) for start, end, path in rendered.images),
    )
