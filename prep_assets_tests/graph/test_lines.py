"""Lines: their form, those that are looked at again, merged ones."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.checks.sources_again import DomainSource
from prep_assets.config.models import FAMILIES
from prep_assets.engine.execute import verdicts_of as verdicts
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.lines.merging import _records
from prep_assets.graph.graph import EVERY
from prep_assets.proofs.verdict import Verdict
from prep_assets.schemas.registry import schemas
from prep_assets.stores.table import LINES, TOKENS, Table, open_stream
from prep_assets.stores.writer import TableWriter
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build, build_all, domain, jsonl, minimal, refusals, resealed
from prep_assets_tests.proofs.spoiled_records import on_row

# The form that a family needs: a schema's variant that gives it is taken, and a schema without one stops the build.


@pytest.mark.parametrize("schema", ["alpaca", "sharegpt"])
def test_the_pairwise_variant_is_taken_for_preferences(make: Make, tmp_path: Path, schema: str) -> None:
    file = jsonl(tmp_path / "p.jsonl", [dict(schemas()[f"{schema}_pairwise"].example)])
    found = {}
    for name in (schema, f"{schema}_pairwise"):
        workspace = make(minimal("preference", {"a": domain(file, name)}, test_fraction=0.0, form="messages"), name)
        published = build_all(workspace, ["preference"])["preferences", ""]
        found[name] = list(open_stream(published.directory, "preferences"))
    assert len(found[schema]) == 1 and found[schema] == found[f"{schema}_pairwise"]


WRONG = [
    ("preference", "messages", "Pair"),
    ("preference", "rl_prompt", "Pair"),
    ("sft", "preference", "Sample"),
    ("sft", "gsm8k_prompt", "Sample"),
    ("pretrain", "stepwise", "Sample"),
    ("rl", "messages", "Prompt"),
]


@pytest.mark.parametrize(("family", "schema", "form"), WRONG)
def test_a_schema_that_cannot_give_the_form_stops(make: Make, tmp_path: Path, family: str, schema: str, form: str) -> None:
    # whatever the rows are: none is converted
    domains = {"z": domain(jsonl(tmp_path / "z.jsonl", [{"no": "such"}]), schema)}
    if family == "preference":
        domains["a"] = domain(jsonl(tmp_path / "a.jsonl", [{"no": "pair"}]), "preference")
    workspace = make(minimal(family, domains))
    with pytest.raises(ConfigError, match=rf"domains\.z: schema '{schema}' gives no {form}, which is needed here\. These do: "):
        workspace.family(FAMILIES[family])


OWN = """
from prep_assets.samples import ASSISTANT, USER, Pair, Sample, turn

def either(row):
    question, answer = turn(USER, "Q?"), turn(ASSISTANT, row["a"])
    if "b" in row:
        return Pair((question,), (answer,), (turn(ASSISTANT, row["b"]),))
    return Sample((question, answer), label=row.get("label"))
"""


def test_functions_of_ones_own_are_judged_row_by_row(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_forms.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    rows: list[dict[str, Any]] = [{"a": "yes", "b": "no"}, {"a": "yes"}, {"a": "yes", "label": True}]
    own = {"o": domain(jsonl(tmp_path / "o.jsonl", rows), "own_forms:either")}
    try:
        pairs = build_all(make(minimal("preference", own, test_fraction=0.0), "p"), ["preference"])["preferences_by_domain", "o"]
        workspace = make(minimal("sft", own), "s")
        tokens = build(workspace, "sft_tokens", "o")
    finally:
        sys.modules.pop("own_forms", None)
    assert [(each.id, each.reason) for each in refusals(pairs)] == [("o.jsonl:2", "not_a_pair")]
    assert (pairs.manifest.counts["train"], pairs.manifest.counts["unpaired_train"]) == (1, 1)
    assert [(each.id, each.reason) for each in refusals(tokens)] == [("o.jsonl:1", "not_a_sample")]


def test_lines_and_their_rows_come_of_one_reading(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of both files of a split, whatever else is asked for, and whether or not a line differs."""
    rows = [{"prompt": f"P{i}?", "chosen": "yes", "rejected": "no"} for i in range(40)]
    workspace = make(minimal("preference", {"p": domain(jsonl(tmp_path / "p.jsonl", rows), "preference")}, test_fraction=0.3))
    published = build_all(workspace, ["preference"])["preferences_by_domain", "p"]
    readings: list[int] = []
    rows_of = DomainSource.rows
    monkeypatch.setattr(DomainSource, "rows", lambda *of: readings.append(1) or rows_of(*of))

    def found(*names: str) -> tuple[dict[str, Verdict], int]:
        readings.clear()
        checks = [check for check in EVERY["preferences_by_domain"].checks if check.name in names]
        return dict(verdicts(workspace, EVERY["preferences_by_domain"], published, checks)), len(readings)

    alone = {**found("source_match")[0], **found("selection")[0]}
    assert found("source_match")[1] == 1
    assert found("source_match", "selection") == (alone, 1)
    assert all(verdict.passed for verdict in alone.values())
    on_row("preferences", 4, chosen="maybe")(published)
    published = resealed(published)
    wrong, count = found("source_match", "selection")
    assert wrong == {**found("source_match")[0], "selection": alone["selection"]} and count == 1
    assert not wrong["source_match"].passed


# Which record of which domain each line of a merged file has.


DOMAINS = {"a": 20, "b": 3, "none": 0, "c": 11}


def written(folder: Path, counts: dict[str, int], seed: int | None = None) -> Table:
    """Lines of some domains, each with the rows 0, 2, 4 … of its file 1."""
    folder.mkdir()
    with TableWriter(folder, "lines", LINES, domains=tuple(counts), shuffle_seed=seed) as writer:
        for number, (name, count) in enumerate(counts.items()):
            for row in range(count):
                writer.append_object({"line": f"{name} {row}"}, 1, 2 * row, number)
    return open_stream(folder, "lines")


def tokens(folder: Path, number: int, lines: list[int]) -> Table:
    """Records of some lines of a domain: as many tokens as the line has digits, all of them the number of the domain."""
    writer = TableWriter(folder, "tokens", TOKENS, {"tokens": "int32"})
    lengths = np.array([len(str(line)) for line in lines], np.int64)
    with writer:
        writer.append({"tokens": np.full(int(lengths.sum()), number, np.int32)}, lengths, [0] * len(lines), lines)
    return open_stream(folder, "tokens")


@pytest.mark.usefixtures("short_stretches")
def test_records_follow_their_lines(tmp_path: Path) -> None:
    merged = written(tmp_path / "merged", DOMAINS, seed=3)
    lines = {name: written(tmp_path / name, {name: count}) for name, count in DOMAINS.items()}
    tokenized = {"a": sorted(random.Random(0).sample(range(20), 15)), "c": list(range(11))}
    streams = {name: tokens(tmp_path / name, number, tokenized[name]) for number, name in enumerate(tokenized)}
    wanted = [
        (list(streams).index(name), tokenized[name].index(int(line)), at)
        for at, (name, line) in enumerate(row["line"].split() for row in merged)
        if name in streams and int(line) in tokenized[name]
    ]
    found = _records(merged, lines, streams)
    assert [*zip(*(column.tolist() for column in found), strict=True)] == wanted and len(wanted) == 26

    with TableWriter(tmp_path / "merged", "tokens", TOKENS, {"tokens": "int32"}) as writer:
        writer.append_records(list(streams.values()), *found)
    joined = open_stream(tmp_path / "merged", "tokens")
    assert joined.origins.row.tolist() == [at for *_, at in wanted]
    for at, (stream, record, _) in enumerate(wanted):
        assert joined.record(at, "tokens").tolist() == [stream] * len(str(list(tokenized.values())[stream][record]))


@pytest.mark.parametrize("count", [10, 12])
def test_lines_that_are_not_those_of_the_domain_stop_the_build(tmp_path: Path, count: int) -> None:
    merged, other = written(tmp_path / "merged", {"c": 11}, seed=0), written(tmp_path / "c", {"c": count})
    with pytest.raises(StoreError, match=f"does not hold the {count} lines of .*Build it again"):
        _records(merged, {"c": other}, {"c": tokens(tmp_path / "c", 0, [1, 2])})
