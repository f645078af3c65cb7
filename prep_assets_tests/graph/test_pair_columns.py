"""Pairs whose rows are read into columns are judged as those whose rows are read one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prep_assets.checks import of_lines as source_match
from prep_assets.checks.sources_again import DomainSource, asked
from prep_assets.engine.execute import verdicts_of as verdicts
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs import second_reading as source_rows
from prep_assets.proofs.verdict import Verdict
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, refusals, resealed, workspace_in
from prep_assets_tests.proofs import corruption
from prep_assets_tests.proofs.conftest import spoilable
from prep_assets_tests.proofs.spoiled_lines import next_lines, one_swapped, reversed_lines, sides_swapped

BY_DOMAIN = "preferences_by_domain"
Rows = list[dict[str, Any]]


def said(role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


def pair(prompt: str, chosen: str, rejected: str, **more: Any) -> dict[str, Any]:
    answers = {"chosen": [said("assistant", chosen, **more)], "rejected": [said("assistant", rejected)]}
    return {"prompt": [said("user", prompt)], **answers}


ODD = [
    pair("twice", "a", "b"),
    pair("twice", "a", "b"),
    pair("equal", "a", "a"),
    pair("blank", " ", "a"),
    pair("", "no", "prompt"),
    pair("tagged", "<think>So.</think>It is.", "No."),
    {**pair("more", "a", "b"), "id": "7"},
    {**pair("system", "a", "b"), "prompt": [said("system", "s"), said("user", "q")]},
    {**pair("robot", "a", "b"), "prompt": [said("robot", "q")]},
    {"prompt": "strings", "chosen": "a", "rejected": "b"},
    pair("caf\u00e9 \u4e2d\n", "b\0c ", " d"),
]


@pytest.fixture(scope="module", params=["text", "messages", "strings"])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Workspace:
    folder = tmp_path_factory.mktemp("pairs")
    rows = [row for number in range(90) for row in (pair(f"{number}?", f"{number}!", "No."), *(ODD if number in (3, 70) else ()))]
    if request.param == "strings":
        rows = [{"prompt": f"{number}?", "chosen": f"{number}!", "rejected": "No."} for number in range(90)]
    domains = {"pairs": domain(jsonl(folder / "pairs.jsonl", rows), "preference")}
    form = "messages" if request.param == "messages" else "text"
    workspace = workspace_in(folder, minimal("preference", domains, test_fraction=0.2, form=form))
    for asset in ("preference_raw", BY_DOMAIN):
        build(workspace, asset, *EVERY[asset].partitions(workspace)[:1])
    return workspace


def both_ways(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> dict[str, Verdict]:
    """The verdicts, which are the same where no row comes in columns."""
    published = workspace.published(BY_DOMAIN, "pairs")
    assert published is not None
    sealed, sure = resealed(published), source_match.LinesMatch._sure
    came: list[bool] = []
    monkeypatch.setattr(source_rows, "FEWEST", 4)
    monkeypatch.setattr(source_match.LinesMatch, "_sure", lambda *given: (found := sure(*given), came.extend(found))[0])
    expected = dict(verdicts(workspace, EVERY[BY_DOMAIN], sealed, EVERY[BY_DOMAIN].checks))
    assert any(came)
    came.clear()
    monkeypatch.setattr(DomainSource, "messages", None)
    assert dict(verdicts(workspace, EVERY[BY_DOMAIN], sealed, EVERY[BY_DOMAIN].checks)) == expected and not came
    return expected


def test_odd_rows_are_judged_alike(made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = made.published(BY_DOMAIN, "pairs")
    assert published is not None and len({line.reason for line in refusals(published)}) in (0, 5, 6)
    judged = both_ways(spoilable(made, tmp_path, BY_DOMAIN), monkeypatch)
    assert [name for name, verdict in judged.items() if not verdict.passed] == []
    checked = judged["source_match"].numbers
    assert checked["lines_read_twice"] in (1, checked["lines_checked"])


def altered(column: str) -> Callable[[Rows], Rows]:
    """One text has a character more."""

    def change(rows: Rows) -> Rows:
        value = rows[5][column]
        rows[5][column] = value + "." if isinstance(value, str) else [*value[:-1], {**value[-1], "content": value[-1]["content"] + "."}]
        return rows

    return change


def with_margin(rows: Rows) -> Rows:
    rows[5]["margin"] = 1.0
    return rows


def another_role(rows: Rows) -> Rows:
    prompt = rows[5]["prompt"]
    rows[5]["prompt"] = [said("assistant", prompt)] if isinstance(prompt, str) else [{**prompt[-1], "role": "assistant"}]
    return rows


@pytest.mark.parametrize("file", ["preferences", "preferences_test"])
@pytest.mark.parametrize(
    "change",
    [
        *map(altered, ("prompt", "chosen", "rejected")),
        *(with_margin, another_role, one_swapped, sides_swapped, reversed_lines),
        *map(next_lines, ("prompt", "chosen", "rejected")),
    ],
)
def test_spoiled_lines_are_judged_alike(
    made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, change: Callable[[Rows], Rows]
) -> None:
    workspace = spoilable(made, tmp_path, BY_DOMAIN)
    published = workspace.published(BY_DOMAIN, "pairs")
    assert published is not None
    corruption.lines(published, file, change)
    same = [json.loads(line) for line in (published.directory / f"{file}.jsonl").open()]
    assert not both_ways(workspace, monkeypatch)["source_match"].passed or len({row["rejected"] == "No." for row in same}) == 1


def test_what_a_line_asks() -> None:
    for line, question in (
        (b'{"prompt": "p", "chosen": "q"}', "p"),
        (b'{"prompt": "p", "query": "q"}', "q"),
        (b'{"query": null}', None),
        (b'{"prompt": [{"role": "user", "content": "p"}], "margin": 1}', [{"role": "user", "content": "p"}]),
        (b'{"prompt": "p", "gold": NaN}', "p"),
        (b'{"prompt": "\\ud800"}', "\ud800"),
    ):
        assert asked(line + b"\n") == question
    for other in (b"{}", b'{"gold": NaN}'):
        with pytest.raises(KeyError, match="prompt"):
            asked(other)
