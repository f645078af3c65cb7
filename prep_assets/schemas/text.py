"""``text``: pretraining documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import Sample, document
from prep_assets.schemas.fields import needed, text_of
from prep_assets.schemas.registry import Convert, schema


@schema("text", gives=Sample, example={"text": "The cat sat on the mat."}, aliases=("GeneralPretrainHandler",))
def text(*, text_key: str = "text", min_chars: int = 1, max_chars: int | None = None, strip: bool = False) -> Convert:
    """One document a row: a single `DOCUMENT` turn.

    Options:
        text_key: field with the document.
        min_chars: shortest document kept, in Unicode code points, counted before stripping (AstrAI's default is 50).
        max_chars: longest document kept; null for no bound (AstrAI's default is 2,000,000).
        strip: remove whitespace at both ends.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        content = needed(text_of(row, text_key), "empty_text", text_key)
        if len(content) < min_chars:
            raise Refused("too_short", f"{text_key!r} has {len(content)} characters, min_chars is {min_chars}")
        if max_chars is not None and len(content) > max_chars:
            raise Refused("too_long", f"{text_key!r} has {len(content)} characters, max_chars is {max_chars}")
        return document(content.strip() if strip else content)

    return convert


@schema("text_read_hook", gives=Sample, example={"text": "The cat sat on the mat."})
def text_read_hook(*, text_key: str = "text") -> Convert:
    """Cerebras' hook for pretraining text: `text` with the ends stripped.

    Options:
        text_key: field with the document.
    """
    return text(text_key=text_key, strip=True)
