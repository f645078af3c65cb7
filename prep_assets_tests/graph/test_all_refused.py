"""Nothing is published where all records of one domain were refused, however many others have."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.data.quarantine import Refusal
from prep_assets.errors import PrepAssetsError
from prep_assets.pipeline.asset import all_refused
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build, build_all, domain, jsonl, minimal

PAIR = {"prompt": "Q?", "chosen": "yes", "rejected": "no"}
PROMPT = {"prompt": "2 + 2?", "gold": "4"}
GROUP = {"prompt": "2 + 2?", "responses": ["4", "5"], "rewards": [1, 0]}
SAME, EMPTY = {**PAIR, "rejected": "yes"}, {**PAIR, "prompt": " "}
CASES: dict[str, tuple[str, str, dict[str, Any], list[dict[str, Any]], str]] = {
    "preference": (
        "preference",
        "preferences",
        PAIR,
        [EMPTY, SAME, {**SAME, "prompt": "R?"}],
        "schema/empty_prompt: 1, schema/equal_answers: 2",
    ),
    "rl_prompt": ("rl", "rl_prompts", PROMPT, [{**PROMPT, "prompt": " "}], "schema/empty_prompt: 1"),
    "group": ("rl", "rl_groups", GROUP, [{**GROUP, "rewards": [1e300, 0]}], "group/reward_out_of_range: 1"),
}


@pytest.mark.parametrize("schema", CASES)
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")], ids=["first", "last"])
def test_a_domain_of_which_nothing_is_kept_stops_the_store_of_all(make: Make, tmp_path: Any, schema: str, order: tuple[str, str]) -> None:
    family, asset, good, bad, reasons = CASES[schema]
    spoilt, sound = order
    domains = {
        # one refusal in the other domain, of another reason, must not be taken for one of this
        sound: domain(jsonl(tmp_path / "good.jsonl", [good, good]), schema),
        spoilt: domain(jsonl(tmp_path / "bad.jsonl", bad), schema),
    }
    workspace = make(minimal(family, domains, test_fraction=0.0))
    for name in domains:
        build(workspace, f"{family}_raw", name)
    number = "bad.jsonl:1" if len(bad) > 1 else "bad.jsonl:0"
    with pytest.raises(PrepAssetsError) as stop:
        build(workspace, asset)
    said = str(stop.value)
    assert said.startswith(f"{asset}_by_domain[{spoilt}]: all {len(bad)} records were refused ({reasons}). The first one")
    assert f", {number}: " in said
    assert "good.jsonl" not in said and "duplicate" not in said
    assert workspace.published(asset) is None


def test_a_domain_of_which_one_record_is_kept_is_published(make: Make, tmp_path: Any) -> None:
    domains = {name: domain(jsonl(tmp_path / f"{name}.jsonl", [SAME, EMPTY, PAIR]), "preference") for name in ("a", "b")}
    published = build_all(make(minimal("preference", domains, test_fraction=0.0)), ["preference"])["preferences", ""]
    assert (published.manifest.counts["read"], published.manifest.counts["kept"]) == (2, 2)


def test_the_example_is_the_first_of_the_most_frequent_reason() -> None:
    refused = [Refusal(f"f:{i}", "s", reason, f"detail {i}", "", 0) for i, reason in enumerate(["rare", "often", "often"])]
    assert all_refused(3, refused) == "all 3 records were refused (s/often: 2, s/rare: 1). The first one of s/often, f:1: detail 1"
    assert all_refused(1, refused[:1]) == "all 1 records were refused (s/rare: 1). The first one, f:0: detail 0"
