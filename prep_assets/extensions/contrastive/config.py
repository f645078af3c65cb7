"""The configuration of contrastive rows: `contrastive.yaml`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from prep_assets.config.base import LONGEST
from prep_assets.config.family import Family, Preprocessing
from prep_assets.samples import Contrast


class Contrasts(Preprocessing):
    """What happens to contrastive rows: `preprocessing` of the contrastive family."""

    max_seq_len: int | None = Field(default=None, ge=1, le=LONGEST)
    """Longest text in tokens, special tokens included; longer ones reject the row. null: no limit."""


class Contrastive(Family):
    """`configs/contrastive.yaml`: queries with positive and negative texts, for embedding models."""

    form_of_rows: ClassVar[type] = Contrast
    code_version: ClassVar[str] = "4"
    stages: ClassVar[tuple[str, ...]] = ("contrast",)

    preprocessing: Contrasts = Contrasts()
    test_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of queries held out, by hash."""

    @staticmethod
    def asked(example: object) -> object:
        """The query."""
        return example.query if isinstance(example, Contrast) else ""
