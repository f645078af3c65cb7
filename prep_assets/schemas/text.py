"""``text``: pretraining documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import Sample, document
from prep_assets.schemas.fields import needed, text_of
from prep_assets.schemas.registry import Convert, schema


@dataclass(frozen=True, slots=True)
class TextField:
    """Rows with one document each, in the field `key`; the options are those of `text`."""

    key: str
    min_chars: int
    max_chars: int | None
    strip: bool

    def __call__(self, row: Mapping[str, Any]) -> Sample:
        """The document of a row, as schemas give it."""
        content = needed(text_of(row, self.key), "empty_text", self.key)
        if len(content) < self.min_chars:
            raise Refused("too_short", f"{self.key!r} has {len(content)} characters, min_chars is {self.min_chars}")
        if self.max_chars is not None and len(content) > self.max_chars:
            raise Refused("too_long", f"{self.key!r} has {len(content)} characters, max_chars is {self.max_chars}")
        return document(content.strip() if self.strip else content)

    def plain(self, row: Mapping[str, Any]) -> str | None:
        """The document's text without the forms around it, for rows that certainly become a document; `None` for others."""
        content = row.get(self.key)
        if not isinstance(content, str) or not content or content.isspace():
            return None
        if len(content) < self.min_chars or (self.max_chars is not None and len(content) > self.max_chars):
            return None
        return content.strip() if self.strip else content


@schema("text", gives=Sample, example={"text": "The cat sat on the mat."}, aliases=("GeneralPretrainHandler",))
def text(*, text_key: str = "text", min_chars: int = 1, max_chars: int | None = None, strip: bool = False) -> Convert:
    """One document a row: a single `DOCUMENT` turn.

    Options:
        text_key: field with the document.
        min_chars: shortest document kept, in Unicode code points, counted before stripping (AstrAI's default is 50).
        max_chars: longest document kept; null for no bound (AstrAI's default is 2,000,000).
        strip: remove whitespace at both ends.
    """
    return TextField(text_key, min_chars, max_chars, strip)


@schema("text_read_hook", gives=Sample, example={"text": "The cat sat on the mat."})
def text_read_hook(*, text_key: str = "text") -> Convert:
    """Cerebras' hook for pretraining text: `text` with the ends stripped.

    Options:
        text_key: field with the document.
    """
    return text(text_key=text_key, strip=True)
