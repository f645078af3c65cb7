"""The configuration of preference pairs: `preference.yaml`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from prep_assets.config.base import MOST, MOST_SEED
from prep_assets.config.family import Chat
from prep_assets.config.models import RowFormOption
from prep_assets.samples import Pair


class Preference(Chat):
    """`configs/preference.yaml`: preference pairs."""

    form_of_rows: ClassVar[type] = Pair
    code_version: ClassVar[str] = "20"
    stages: ClassVar[tuple[str, ...]] = ("pair",)

    max_per_source: int | None = Field(default=None, ge=1, le=MOST)
    """Use only so many records of each domain, the first."""
    test_fraction: float = Field(default=0.05, ge=0, lt=1)
    """Share of prompts held out, by hash."""
    seed: int = Field(ge=-MOST_SEED, le=MOST_SEED, default=0)
    """Seed of the shuffle."""
    shuffle: bool = True
    """Shuffle the training file."""
    truncation: Literal["drop", "end"] = "drop"
    """A side longer than max_seq_len: reject the pair, or cut the side's end, unless no answer is left or both become equal."""
    form: RowFormOption = "auto"
    """text: strings, rejecting other rows; messages: {role, content} with reasoning, tool calls and tools; auto: strings if all rows fit, else messages."""

    @property
    def most_rows(self) -> int | None:
        """See `Family`."""
        return self.max_per_source
