"""Scored and ranked responses as lists and as labelled answers, two answers with a verdict, and stores in which they are wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import ConfigError
from prep_assets.extensions.explain.trace import trace
from prep_assets.extensions.lines.write import strings_as_messages
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Pair, Sample
from prep_assets.schemas.registry import convert_with
from prep_assets.stores.table import GROUPS, open_stream, open_table
from prep_assets_tests.graph.workspaces import build, build_all, copy_of, domain, failing, jsonl, minimal, refusals, resealed, workspace_in
from prep_assets_tests.proofs import corruption

BY_DOMAIN = "preferences_by_domain"
SCORES = [[0.1, 0.2, 0.3], [-1, 2, 2], [1, 1, 1], [0.5, 0.25, 0.75], [3, 1, 2, 2]]
SCORED = [
    {"prompt": f"{n}?", "responses": [f"{n}{letter}" for letter in "abcd"[: len(SCORES[n % 5])]], "rewards": SCORES[n % 5]}
    for n in range(100)
]
RANKED = [
    {
        "prompt": f"\n\nHuman: Say {n} \n\nAssistant: ",
        "answers": [{"answer": f"{n} as {rank}", "model": "m", "rank": float(rank)} for rank in (2, 1, 3)],
        "source": ["x"],
    }
    for n in range(20)
]
NECTAR = {"responses_key": "answers.answer", "ranks_key": "answers.rank", "marked_prompt": True}
ODD: list[dict[str, Any]] = [
    {"prompt": "one", "responses": ["a"], "rewards": [1]},
    {"prompt": "both", "responses": ["a", "a"], "rewards": [1, 2]},
    {"prompt": "turns", "responses": [[{"role": "assistant", "content": "a"}], "b"], "rewards": [1, 2]},
    {"prompt": "far", "responses": ["a", "b"], "rewards": [1e39, 2]},
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("rankings")
    scored, ranked = jsonl(folder / "scored.jsonl", SCORED + ODD), jsonl(folder / "ranked.jsonl", RANKED)
    labelled = [{"prompt": f"alone {n}", "completion": "yes", "label": n % 2 == 0} for n in range(10)]
    domains = {
        "lists": domain(scored, "group_list"),
        "labels": domain(scored, "group_kto"),
        "goods": domain(scored, "group_kto", options={"desirable_from": 0.75}),
        "nectar": domain(ranked, "group_list", options=NECTAR, ignore=["source", "answers.model"]),
        "pairs": domain(scored, "group"),
        "alone": domain(jsonl(folder / "alone.jsonl", labelled), "kto"),
    }
    workspace = workspace_in(folder, minimal("preference", domains, test_fraction=0.2))
    build_all(workspace, ["preference"])
    return workspace


def lines(workspace: Workspace, partition: str, stem: str) -> list[dict[str, Any]]:
    """Those to train on and those held out."""
    directory = (workspace.built(BY_DOMAIN, partition) if partition else workspace.built("preferences")).directory
    return [line for name in (stem, f"{stem}_test") for line in open_stream(directory, name)]


def by_prompt(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def ordered(row: dict[str, Any]) -> dict[str, Any]:
    """By selection: the first of the best, again and again."""
    left = list(zip(row["rewards"], row["responses"], strict=True))
    taken = []
    while left:
        best = max(reward for reward, _ in left)
        taken.append(left.pop(next(at for at, (reward, _) in enumerate(left) if reward == best)))
    return {"prompt": row["prompt"], "responses": [text for _, text in taken], "rewards": [float(reward) for reward, _ in taken]}


def test_a_list_has_all_responses_from_the_best_on(made: Workspace) -> None:
    rows = [row for row in SCORED if len(set(row["rewards"])) > 1]
    assert by_prompt(lines(made, "lists", "ranked")) == by_prompt([*map(ordered, [*rows, {**ODD[2], "responses": ["a", "b"]}])])
    counts = made.built(BY_DOMAIN, "lists").manifest.counts
    assert counts["tied"] == sum(len(set(row["rewards"])) < len(row["rewards"]) for row in rows) == 40
    assert Counter(each.reason for each in refusals(made.built(BY_DOMAIN, "lists"))) == {
        "equal_rewards": 20,
        "single_response": 1,
        "contradicting_rewards": 1,
        "reward_out_of_range": 1,
    }


def test_ranks_are_negated_rewards(made: Workspace) -> None:
    expected = [
        {"prompt": f"Say {n}", "responses": [f"{n} as {rank}" for rank in (1, 2, 3)], "rewards": [-1.0, -2.0, -3.0]} for n in range(20)
    ]
    assert by_prompt(lines(made, "nectar", "ranked")) == by_prompt(expected)


def labelled(judge: Callable[[list[Decimal], Decimal], bool | None]) -> list[dict[str, Any]]:
    rows = []
    for row in [*SCORED, ODD[0], ODD[1], {**ODD[2], "responses": ["a", "b"]}, ODD[3]]:
        rewards = [Decimal(str(reward)) for reward in row["rewards"]]
        for text, reward in zip(row["responses"], rewards, strict=True):
            if (label := judge(rewards, reward)) is not None:
                rows.append({"prompt": row["prompt"], "completion": text, "label": label})
    return rows


def by_mean(rewards: list[Decimal], reward: Decimal) -> bool | None:
    """3 × 0.2 is 0.1 + 0.2 + 0.3."""
    compared = (reward * len(rewards)).compare(sum(rewards))
    return None if not compared or len(rewards) < 2 else compared > 0


def test_a_label_says_on_which_side_of_the_mean_a_response_is(made: Workspace) -> None:
    expected = [row for row in labelled(by_mean) if row["prompt"] != "both"]
    assert by_prompt(lines(made, "labels", "unpaired")) == by_prompt(expected)
    counts = made.built(BY_DOMAIN, "labels").manifest.counts
    assert counts["answers_left_out"] == 20 + 20 + 40  # 0.2, 0.5, and twice 2
    assert counts["kept"] == counts["read"] - sum(counts["refused"].values()) == 82
    assert counts["unpaired_train"] + counts["unpaired_test"] == len(expected)


def test_a_threshold_labels_every_response(made: Workspace) -> None:
    expected = labelled(lambda _, reward: reward >= Decimal("0.75"))
    assert by_prompt(lines(made, "goods", "unpaired")) == by_prompt(expected)
    assert "answers_left_out" not in made.built(BY_DOMAIN, "goods").manifest.counts


def test_merged_files_hold_the_lines_of_all_domains(made: Workspace) -> None:
    counts, parts = made.built("preferences").manifest.counts, ("lists", "labels", "goods", "nectar", "pairs", "alone")
    assert counts["kept"] == sum(made.built(BY_DOMAIN, name).manifest.counts["kept"] for name in parts)
    assert by_prompt(lines(made, "", "unpaired")) == by_prompt(
        [row for name in (*parts[1:3], "alone") for row in lines(made, name, "unpaired")]
    )
    assert by_prompt(lines(made, "", "ranked")) == by_prompt([row for name in ("lists", "nectar") for row in lines(made, name, "ranked")])
    assert (counts["tied"], counts["answers_left_out"]) == (40, 80)


@pytest.mark.parametrize("partition", ["lists", "labels", "nectar", ""])
def test_the_selftest_passes(made: Workspace, partition: str) -> None:
    asset = BY_DOMAIN if partition else "preferences"
    published = made.built(asset, partition)
    trials = selftest(made, published)
    assert all(trial.passed for trial in trials)
    caught = {trial.mutation for trial in trials if trial.caught}
    if partition in ("lists", "nectar"):
        assert {
            "responses of a list exchanged",
            "rewards of a list doubled",
            "a list from the worst on",
            "a response of a list lost",
        } <= caught
    elif partition:
        assert "a label inverted" in caught


def swapped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two labelled answers of one row change places."""
    at = next(at for at, (row, other) in enumerate(pairwise(rows)) if row["prompt"] == other["prompt"])
    rows[at], rows[at + 1] = rows[at + 1], rows[at]
    return rows


def turned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows[3]["label"] = not rows[3]["label"]
    return rows


def best_last(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows[2]["responses"].reverse()
    return rows


def untied(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    row = next(row for row in rows if len(set(row["rewards"])) < len(row["rewards"]))
    row["rewards"] = [float(10 - at) for at in range(len(row["rewards"]))]
    return rows


@pytest.mark.parametrize(
    ("partition", "stem", "spoil", "checks"),
    [
        ("labels", "unpaired", swapped, ["source_match", "source_texts"]),
        ("labels", "unpaired", turned, ["source_match", "source_texts"]),
        ("goods", "unpaired_test", turned, ["source_match", "source_texts"]),
        ("lists", "ranked", best_last, ["source_match", "source_texts"]),
        ("lists", "ranked", untied, ["accounting", "source_match", "source_texts"]),
    ],
)
def test_a_spoiled_store_is_seen(
    made: Workspace, tmp_path: Path, partition: str, stem: str, spoil: Callable[[Any], Any], checks: list[str]
) -> None:
    workspace = copy_of(made, tmp_path / "w")
    published = workspace.built(BY_DOMAIN, partition)
    corruption.lines(published, stem, spoil)
    assert failing(workspace, resealed(published)) == checks


def test_a_lost_answer_of_a_row_is_seen(made: Workspace, tmp_path: Path) -> None:
    import numpy as np

    workspace = copy_of(made, tmp_path / "w")
    published = workspace.built(BY_DOMAIN, "labels")
    path = published.directory / "unpaired.jsonl"
    texts = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(texts[1:]), "utf-8")
    for column in (published.directory / "unpaired.index").glob("*.npy"):
        np.save(column, np.load(column)[1:])
    assert failing(workspace, resealed(published)) == ["accounting", "source_match", "source_texts"]


def test_rl_reads_lists_as_groups_and_no_labels(tmp_path: Path) -> None:
    rows = jsonl(tmp_path / "scored.jsonl", SCORED[:2])
    built = build(workspace_in(tmp_path / "a", minimal("rl", {"lists": domain(rows, "group_list")}, test_fraction=0)), "rl_groups")
    groups = open_table(built.directory)
    assert groups.schema is GROUPS and len(groups) == 2 and len(groups.columns["rewards"].values) == 6
    with pytest.raises(ConfigError, match="schema 'group_kto' gives no Prompt"):
        build(workspace_in(tmp_path / "b", minimal("rl", {"labels": domain(rows, "group_kto")}, test_fraction=0)), "rl_groups")


def test_verdicts_on_two_answers(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "Hi"}]
    rows = [{"context": chat, "response1": f"a{verdict}", "response2": "b", "overall_preference": verdict} for verdict in (-3, -1, 0, 2)]
    arena = [
        {
            "conversation_a": [*chat, {"role": "assistant", "content": "a"}],
            "conversation_b": [*chat, {"role": "assistant", "content": "b"}],
            "winner": winner,
        }
        for winner in ("model_a", "model_b", "tie", "tie (bothbad)", "nobody")
    ]
    keys = {"prompt_key": None, "first_key": "conversation_a", "second_key": "conversation_b", "verdict_key": "winner"}
    domains = {
        "steer": domain(jsonl(tmp_path / "s.jsonl", rows), "compared", options={"margin": True}),
        "arena": domain(jsonl(tmp_path / "a.jsonl", arena), "compared", options=keys),
    }
    workspace = workspace_in(tmp_path, minimal("preference", domains, test_fraction=0))
    build(workspace, "preferences")
    pairs = [
        (row["chosen"], row["rejected"], row["margin"]) for row in open_stream(workspace.built(BY_DOMAIN, "steer").directory, "preferences")
    ]
    assert pairs == [("a-3", "b", 3.0), ("a-1", "b", 1.0), ("b", "a2", 2.0)]
    assert [each.reason for each in refusals(workspace.built(BY_DOMAIN, "steer"))] == ["tie"]
    arena_lines = open_stream(workspace.built(BY_DOMAIN, "arena").directory, "preferences")
    assert [(row["chosen"], row["rejected"]) for row in arena_lines] == [("a", "b"), ("b", "a")]
    assert [each.reason for each in refusals(workspace.built(BY_DOMAIN, "arena"))] == ["tie", "tie", "unknown_verdict"]


def test_lines_are_traced_to_their_rows(made: Workspace) -> None:
    """Of several labelled answers of one row, each to itself."""
    for asset, partition, stem in ((BY_DOMAIN, "labels", "unpaired"), ("preferences", "", "unpaired"), ("preferences", "", "ranked")):
        rows = list(open_stream(made.built(asset, partition).directory, stem))
        for number in range(0, len(rows), 9):
            [found] = trace(made, asset, number, partition=partition or None, stream=stem).pieces
            assert found.line == rows[number] and not found.differs


def test_strings_become_messages_beside_messages(tmp_path: Path) -> None:
    """In lists and labelled answers as in pairs; traced and proven all the same."""
    plain = SCORED[:20]
    rich = [
        {**row, "prompt": [{"role": "system", "content": "Short."}, {"role": "user", "content": row["prompt"]}]} for row in SCORED[20:40]
    ]
    files = {"plain": jsonl(tmp_path / "plain.jsonl", plain), "rich": jsonl(tmp_path / "rich.jsonl", rich)}
    domains = {f"{name}_{schema}": domain(file, schema) for name, file in files.items() for schema in ("group_list", "group_kto")}
    workspace = workspace_in(tmp_path, minimal("preference", domains, test_fraction=0.2))
    built = build(workspace, "preferences")
    ranked, labelled = (list(open_stream(built.directory, name)) for name in ("ranked", "unpaired"))
    answers = [answer for row in ranked for answer in row["responses"]] + [row["completion"] for row in labelled]
    assert {(len(each), each[0]["role"]) for each in answers} == {(1, "assistant")}
    assert {len(row["prompt"]) for row in (*ranked, *labelled)} == {1, 2}
    for stem, rows in (("ranked", ranked), ("unpaired", labelled)):
        for number in range(0, len(rows), 5):
            line = trace(workspace, "preferences", number, stream=stem).pieces[0].line
            assert line is not None and rows[number] in (line, strings_as_messages(line))


def test_ranked_rows_give_pairs_and_best_answers_too() -> None:
    """One source, by configuration: the options of lists."""
    pair = convert_with("group_pair", {**NECTAR, "margin": True})(RANKED[3])
    best = convert_with("group_best", NECTAR)(RANKED[3])
    assert isinstance(pair, Pair) and isinstance(best, Sample)
    assert [turns[0].text for turns in (pair.prompt, pair.chosen, pair.rejected)] == ["Say 3", "3 as 1", "3 as 3"] and pair.margin == 2
    assert [turn.text for turn in best.turns] == ["Say 3", "3 as 1"]
