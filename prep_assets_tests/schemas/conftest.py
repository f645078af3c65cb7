"""How the tests of schemas call them: by name, through the registry, as the pipelines do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from prep_assets.errors import Refused
from prep_assets.samples import Example, Turn
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with


@pytest.fixture
def convert() -> Callable[..., Example]:
    """``convert("alpaca", row, join=" ")`` is the example that the row becomes."""
    return lambda name, row, **options: apply(convert_with(name, options), row)


@pytest.fixture
def refusal() -> Callable[..., Refused]:
    """``refusal("alpaca", row)`` is the refusal of a row that must be refused."""

    def refuse(name: str, row: Mapping[str, Any], **options: Any) -> Refused:
        with pytest.raises(Refused) as caught:
            apply(convert_with(name, options), row)
        assert caught.value.stage == "schema"
        return caught.value

    return refuse


@pytest.fixture
def said() -> Callable[..., list[tuple[str, str]]]:
    """``said(turns)`` is ``(role, text)`` of each turn."""

    def roles_and_texts(turns: tuple[Turn, ...]) -> list[tuple[str, str]]:
        return [(turn.role, turn.text) for turn in turns]

    return roles_and_texts
