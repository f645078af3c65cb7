"""Licences by row: none that is not allowed is published, in any family, and counts are those of the rows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets import api
from prep_assets.checks.bounds import BOUNDED
from prep_assets.checks.licences import licence_of
from prep_assets.engine import build
from prep_assets.errors import PrepAssetsError
from prep_assets.extensions.neighbours.attestation import attest, attestation_page
from prep_assets.extensions.neighbours.description import describe
from prep_assets.extensions.neighbours.hub import card, front_matter
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.asset import FromRows
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, workspace_in

NAMED = ("mit", "CC-BY-4.0 ", ["mit", "apache-2.0"], None, "cc-by-nc-4.0")
ROWS: dict[str, dict[str, Any]] = {
    "pretrain": {"text": "Document {} says enough to be kept."},
    "sft": {"prompt": "What is {}?", "completion": "It is the number {}."},
    "preference": {"prompt": "What is {}?", "chosen": "It is {}, surely.", "rejected": "No idea."},
    "rl": {"prompt": "What is {}?", "gold": "{}"},
    "contrastive": {"query": "What is {}?", "positive": "It is {}.", "negatives": ["It is not {}."]},
}
SCHEMAS = {"pretrain": "text", "sft": "prompt_completion", "preference": "preference", "rl": "rl_prompt", "contrastive": "contrastive"}
MERGED = {"pretrain": "pretrain_tokens", "sft": "sft_packed", "preference": "preferences", "rl": "rl_prompts", "contrastive": "contrastive"}


def rows(family: str, named: tuple[Any, ...] = NAMED, count: int = 40) -> list[dict[str, Any]]:
    text = json.dumps(ROWS[family])
    made = [json.loads(text.replace("{}", str(n))) for n in range(count)]
    return [{**row, "meta": {"license": named[n % len(named)]}} for n, row in enumerate(made)]


def workspace(folder: Path, family: str, listed: list[dict[str, Any]], allow: list[str] | None = None, **more: Any) -> Workspace:
    folder.mkdir(parents=True, exist_ok=True)
    source = domain(jsonl(folder / "rows.jsonl", listed), SCHEMAS[family], licence_key="meta.license", **more)
    quality = {} if allow is None else {"quality": {"licences": {"allow": allow}}}
    template = {"template": "chatml"} if family not in ("pretrain", "contrastive") else {}
    return workspace_in(folder, minimal(family, {"rows": source}, test_fraction=0.2, **template, **quality))


def recounted(listed: list[dict[str, Any]]) -> dict[str, int]:
    """As somebody would count them by hand."""
    names = {
        "mit": "mit",
        "CC-BY-4.0 ": "cc-by-4.0",
        "None": "unknown",
        "cc-by-nc-4.0": "cc-by-nc-4.0",
        "['mit', 'apache-2.0']": "apache-2.0, mit",
    }
    return dict(Counter(names[str(row["meta"]["license"])] for row in listed))


@pytest.mark.parametrize("family", SCHEMAS)
def test_a_row_of_a_licence_that_is_not_allowed_stops_what_is_made_of_it(tmp_path: Path, family: str) -> None:
    listed = rows(family)
    strict = workspace(tmp_path / "strict", family, listed, ["mit", "cc-by-4.0", "apache-2.0"])
    with pytest.raises(
        PrepAssetsError, match=r"16 of 40 rows have licences that quality\.licences does not allow: cc-by-nc-4.0 8, unknown 8"
    ):
        build(strict, MERGED[family])
    assert api.status(strict)[f"{MERGED[family]}[rows]" if EVERY[MERGED[family]].partitioned else MERGED[family]].state == "missing"
    allowed = workspace(tmp_path / "allowed", family, listed, ["mit", "cc-by-4.0", "apache-2.0", "cc-by-nc-4.0", "unknown"])
    [store] = [built.published for built in build(allowed, MERGED[family])]
    plain = workspace(tmp_path / "plain", family, listed)
    assert [built.published.manifest for built in build(plain, MERGED[family])] == [store.manifest]  # they change no byte


def test_every_asset_that_is_made_from_rows_is_held_to_them() -> None:
    made = [asset for asset in EVERY.values() if isinstance(asset.source, FromRows)]
    assert len(made) >= 6
    assert all(any(check.name in BOUNDED for check in asset.checks) for asset in made)


def test_a_rule_judges_stores_that_exist_and_heals_without_a_build(tmp_path: Path) -> None:
    plain = workspace(tmp_path, "sft", rows("sft"))
    build(plain, "sft_packed")
    path = tmp_path / "configs" / "sft.yaml"
    options = yaml.safe_load(path.read_text("utf-8"))

    def with_quality(quality: dict[str, Any]) -> Workspace:
        path.write_text(yaml.safe_dump({**options, "quality": quality}), "utf-8")
        return Workspace(tmp_path / "configs", tmp_path / "stores")

    strict = with_quality({"licences": {"allow": ["mit"]}})
    assert {name: status.state for name, status in api.status(strict).items() if name.startswith("sft_tokens")} == {
        "sft_tokens[rows]": "failed"
    }
    assert api.status(strict)["sft_packed"].state == "stale"
    with pytest.raises(PrepAssetsError, match=r"quality\.licences does not allow"):
        build(strict, "sft_packed")
    healed = api.status(with_quality({}))
    assert {healed[name].state for name in ("sft_tokens[rows]", "sft_packed")} == {"current"}


def test_rows_that_are_left_out_do_not_count(tmp_path: Path) -> None:
    listed = rows("sft")
    kept = workspace(tmp_path, "sft", [*listed, *listed[:10]], ["mit"], where={"meta.license": "mit"})
    build(kept, "sft_packed")
    description, _ = describe(kept, "sft_packed")
    assert description.licence_rows == {"mit": 8}  # the second time they are duplicates, and count once
    assert description.licence == ("mit",)


@pytest.mark.parametrize("family", SCHEMAS)
def test_counts_of_card_and_attestation_are_those_of_the_rows(tmp_path: Path, family: str) -> None:
    listed = rows(family, NAMED[:3])
    made = workspace(tmp_path, family, listed)
    asset = MERGED[family]
    build(made, asset)
    description, _ = describe(made, asset, "rows" if EVERY[asset].partitioned else "")
    assert description.licence_rows == recounted(listed)
    assert description.licence == ("apache-2.0", "cc-by-4.0", "mit")
    assert front_matter(description)["license"] == ["apache-2.0", "cc-by-4.0", "mit"]
    for name, count in recounted(listed).items():
        assert f"| {name} | {count} |" in card(description)
    document = attest(made, asset, "rows" if EVERY[asset].partitioned else "")
    assert document["attestation"]["store"]["rows_by_licence"] == recounted(listed)
    assert document["attestation"]["california_summary"][4]["known"] == recounted(listed)
    assert "Rows by licence" in attestation_page(document, "")


def test_a_licence_of_one_row_that_is_unknown_leaves_the_whole_unknown(tmp_path: Path) -> None:
    made = workspace(tmp_path, "sft", rows("sft", ("mit", "mit", "My own licence!")))
    build(made, "sft_packed")
    assert describe(made, "sft_packed")[0].licence == ("mit", "other")
    other = workspace(tmp_path / "other", "sft", rows("sft", ("mit", None)))
    build(other, "sft_packed")
    assert describe(other, "sft_packed")[0].licence == ()


@pytest.mark.parametrize(
    ("row", "key", "licence"),
    [
        ({"license": "MIT"}, "license", "mit"),
        ({"meta": {"license": " MIT "}}, "meta.license", "mit"),
        ({"license": ["mit", None, "bsd"]}, "license", "bsd, mit"),
        ({"license": ""}, "license", "unknown"),
        ({"license": []}, "license", "unknown"),
        ({"meta": "mit"}, "meta.license", "unknown"),
        ({}, "license", "unknown"),
    ],
)
def test_what_a_row_names(row: dict[str, Any], key: str, licence: str) -> None:
    assert licence_of(row, key) == licence
