"""Pairs and labelled answers, each fault named."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.proofs.pairs import check_pairs


def pair(**changes: Any) -> dict[str, Any]:
    return {"prompt": "p", "chosen": "long answer", "rejected": "no", **changes}


@pytest.mark.parametrize(
    ("train", "test", "says"),
    [
        ([pair()], [pair(prompt="q")], None),
        ([pair(), pair()], [], None),
        ([pair()], [pair()], "its prompt is in the training file as well"),
        ([pair(chosen="no")], [], "chosen equals rejected"),
        ([pair(prompt=" ")], [], "prompt is empty"),
        ([pair(chosen=[])], [], "mixed"),
        ([{"prompt": "p", "chosen": "a"}], [], "fields"),
        ([pair(extra=1)], [], "fields"),
        ([], [pair(rejected="\n")], "rejected is empty"),
    ],
)
def test_pairs(train: list[dict[str, Any]], test: list[dict[str, Any]], says: str | None) -> None:
    verdict = check_pairs(train, test)
    assert verdict.passed == (says is None)
    assert says is None or says in verdict.summary
    assert verdict.numbers["pairs_checked"] == len(train) + len(test)


def test_pairs_of_messages() -> None:
    def said(role: str, text: str) -> list[dict[str, str]]:
        return [{"role": role, "content": text}]

    good = {"prompt": said("user", "p"), "chosen": said("assistant", "a"), "rejected": said("assistant", "b")}
    assert check_pairs([good], []).passed
    assert not check_pairs([{**good, "chosen": said("assistant", " ")}], []).passed
    assert not check_pairs([{**good, "rejected": good["chosen"]}], []).passed
    assert not check_pairs([good], [{**good, "chosen": said("assistant", "c")}]).passed
