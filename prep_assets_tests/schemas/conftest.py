"""How the tests of schemas call them, by name, through the registry, as the pipelines do; and how they write examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from prep_assets.errors import Refused
from prep_assets.samples import TEXT, Example, Group, Pair, Prompt, Region, Sample, Turn
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


def in_short(example: Example) -> str:
    """An example in one line: ``user: q | assistant: <thinking>hm</thinking>a*0.5``. A weight stands behind ``*``, what is dropped in brackets, and what is
    not attended to behind ``~``. Parts of a pair and of a group stand apart by ``>>``; behind ``=`` stand a label and a gold answer."""
    if isinstance(example, Sample):
        return _turns(example.turns) + ("" if example.label is None else f" = {example.label}")
    if isinstance(example, Pair):
        return " >> ".join(map(_turns, (example.prompt, example.chosen, example.rejected)))
    if isinstance(example, Prompt):
        return f"{_turns(example.prompt)} = {example.gold} ({example.verifier})"
    assert isinstance(example, Group)
    answers = [f"{_turns(turns)} ({reward:g})" for turns, reward in zip(example.responses, example.rewards, strict=True)]
    return " >> ".join([_turns(example.prompt), *answers])


def _turns(turns: Iterable[Turn]) -> str:
    return " | ".join(f"{turn.role}{f'({turn.name})' if turn.name else ''}: {''.join(map(_region, turn.regions))}" for turn in turns)


def _region(region: Region) -> str:
    text = region.text if region.kind == TEXT else f"<{region.kind}>{region.text}</{region.kind}>"
    weighted = text if region.loss_weight is None else f"{text}*{region.loss_weight:g}"
    return ("" if region.attend else "~") + (f"[{weighted}]" if region.drop else weighted)
