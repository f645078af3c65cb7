"""What every model of the configuration has, and the largest values of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

MOST, LONGEST = 10**12, 1 << 24
"""The largest number of things that a number may ask for; of tokens that are held at a time."""
MOST_WORKERS, MOST_EPOCHS, MOST_PATCHES, MOST_DOMAINS, MOST_SEED = 4096, 10_000, 65_536, 10_000, 2**63 - 1


class Model(BaseModel):
    """Frozen, and strict about keys and numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        found = value.values() if isinstance(value, Mapping) else (value,)
        if any(isinstance(each, bool) for each in found) and _is_numeric(cls.model_fields[str(info.field_name)].annotation):
            raise ValueError("needs a number, not true or false")
        return value


def _is_numeric(hint: Any) -> bool:
    """Whether a field holds a number, or a mapping to numbers, or null."""
    return hint in (int, float) or any(_is_numeric(each) for each in get_args(hint))
