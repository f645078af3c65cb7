"""``text``: pretraining documents."""

from __future__ import annotations

from msgspec import Struct

from prep_assets.errors import Refused
from prep_assets.samples import Row, Sample, document
from prep_assets.schemas.fields import needed, text_of
from prep_assets.schemas.registry import Convert, schema


class TextField(Struct, frozen=True):
    """Reads one document a row from the field `key`; the options are those of `text`."""

    key: str
    min_chars: int
    max_chars: int | None
    strip: bool

    def __call__(self, row: Row) -> Sample:
        """The document of a row."""
        content = needed(text_of(row, self.key), "empty_text", self.key)
        if len(content) < self.min_chars:
            raise Refused("too_short", f"{self.key!r} has {len(content)} characters, min_chars is {self.min_chars}")
        if self.max_chars is not None and len(content) > self.max_chars:
            raise Refused("too_long", f"{self.key!r} has {len(content)} characters, max_chars is {self.max_chars}")
        return document(content.strip() if self.strip else content)

    def plain(self, row: Row) -> str | None:
        """Only the text of a row's document, without building a `Sample`; `None` where the row would be rejected."""
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
        text_key: the document.
        min_chars: shortest document in code points, before stripping (AstrAI: 50).
        max_chars: longest document (AstrAI: 2,000,000); null: no bound.
        strip: strip the document.
    """
    return TextField(text_key, min_chars, max_chars, strip)
