"""Rows of chats that are read many at a time are what their schema makes of each, and fields that it passes over are counted alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.errors import Refused
from prep_assets.samples import PlainChat, Sample
from prep_assets.schemas import plain_rows
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.effort import examples

KEYS = {"messages": ("messages", "role", "content"), "sharegpt": ("conversations", "from", "value")}
TAGS = st.sampled_from(["user", "assistant", "system", "human", "gpt", "tool", 5, None, ["user"]])
TEXTS = st.sampled_from(["a", "b", " a\n", "é", "", " ", None, 5, [{"type": "text", "text": "a"}]])


def rows_of(schema: str) -> st.SearchStrategy[dict[str, Any]]:
    column, role, content = KEYS[schema]
    usual = [("user", "assistant"), ("human", "gpt")][schema == "sharegpt"]
    plain = st.lists(st.sampled_from(["a", "b", "c d"]), min_size=1, max_size=2).map(
        lambda texts: [{role: tag, content: text} for text in texts for tag in usual]
    )
    odd = st.lists(st.fixed_dictionaries({role: TAGS, content: TEXTS}, optional={"name": st.just("n")}), max_size=3)
    beside = {"id": st.integers(0, 3), "source": st.just("s"), "weight": st.sampled_from([0, 1])}
    return st.fixed_dictionaries({column: plain | plain | plain | odd | st.sampled_from([None, "text", {}])}, optional=beside)


@pytest.mark.parametrize("schema", KEYS)
def test_many_at_a_time(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_rows, "_FEW", 2)
    read_in_columns = 0

    @settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(rows_of(schema), max_size=8))
    def check(rows: list[dict[str, Any]]) -> None:
        nonlocal read_in_columns
        many, alone = (Reader(convert_with(schema, {}, gives=Sample), Account()) for _ in range(2))
        for found, row in zip([*many.rows(rows), *many.rows(rows)], rows * 2, strict=True):
            read_in_columns += isinstance(found, PlainChat)
            try:
                expected: Any = apply(alone, row)
            except Refused as refusal:
                assert isinstance(found, Refused) and (found.reason, found.detail, found.stage) == (
                    refusal.reason,
                    refusal.detail,
                    refusal.stage,
                )
            else:
                assert (found.sample() if isinstance(found, PlainChat) else found) == expected
        assert (many.account.counts, many.account.unknown) == (alone.account.counts, alone.account.unknown)

    check()
    assert read_in_columns > 50
