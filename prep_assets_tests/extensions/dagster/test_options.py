"""Options of one run: the launchpad shows them all, those that are set override the file, and the others never do."""

from __future__ import annotations

import functools
import operator
import re
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import h5py
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.config.base import Model, descriptions
from prep_assets.config.models import FAMILIES
from prep_assets.engine import Statuses, state
from prep_assets.extensions.dagster.site import AS_CONFIGURED, chosen, options
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.effort import examples
from prep_assets_tests.extensions.dagster.runs import checks_of, defs, evaluations, failures, materializations, run, stale
from prep_assets_tests.graph.workspaces import SHIPPED_ASSETS

JOB = defs.resolve_implicit_global_asset_job_def()


def described(model: type[Model], prefix: str = "") -> dict[str, str]:
    """Path and description of every option of a configuration model, but for what is fixed when the definitions load."""
    found = {}
    for name, field in model.model_fields.items():
        if prefix + name in ("domains", "refresh", "exports", "image_tokens", "audio_tokens", "video_tokens"):
            continue
        if isinstance(field.annotation, type) and issubclass(field.annotation, Model):
            found |= described(field.annotation, f"{prefix}{name}.")
        else:
            found[prefix + name] = descriptions(model)[name]
    return found


def in_launchpad(config_type: Any, prefix: str = "") -> dict[str, str]:
    """Path and description of every option that the launchpad shows."""
    found = {}
    for name, field in config_type.fields.items():
        if hasattr(field.config_type, "fields") and field.config_type.fields:
            found |= in_launchpad(field.config_type, f"{prefix}{name}.")
        else:
            found[prefix + name] = field.description or ""
    return found


@pytest.mark.parametrize("asset", SHIPPED_ASSETS)
def test_the_launchpad_shows_every_option_with_its_description(asset: str) -> None:
    schema = defs.resolve_assets_def(asset).op.config_schema.config_type
    expected = described(FAMILIES[SHIPPED_ASSETS[asset].family])
    shown = in_launchpad(schema)
    assert "draft" in shown.pop("publish")
    if "packing.row_len" in shown:
        assert shown["packing.row_len"].endswith(" (at least 2, at most 16,777,216)")
    assert {path: re.sub(r" \((at least|more than|at most|less than) .*\)$", "", text) for path, text in shown.items()} == expected
    assert len(expected) > 10 and all(expected.values())


# -- what is set, and what is not -------------------------------------------------------------------------------------------------------

# falsy values are values: they override as well
VALUES: dict[str, Any] = {
    "on_missing": "fail",
    "engine": "reference",
    "test_fraction": 0.0,
    "mask": {"assistant": "train", "user": "mask"},
    "preprocessing.deduplicate": False,
    "preprocessing.max_seq_len": 900,
    "output.storage_format": "bin",
    "packing.seed": 0,
    "packing.strategy": "bfd",
    "packing.weights": {"gsm8k": 0.5, "chats": 0.5},
    "packing.max_items": {"dolly": 3},
}


def nested(paths: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, value in paths.items():
        *above, last = path.split(".")
        place = found
        for key in above:
            place = place.setdefault(key, {})
        place[last] = value
    return found


@given(st.sets(st.sampled_from(sorted(VALUES))))
@settings(max_examples=examples(40), deadline=None)
def test_exactly_what_is_set_is_chosen(paths: set[str]) -> None:
    values = nested({path: VALUES[path] for path in sorted(paths)})
    assert chosen(options("sft")(**values)) == values


def test_a_mapping_to_sections_is_set_as_the_file_has_it() -> None:
    kept = {"truncation": "prompt", "truncation_keeps": {"user": {"part": "end", "least": 4}}}
    assert chosen(options("sft")(**kept)) == kept


def test_as_configured_is_the_same_as_not_set() -> None:
    assert chosen(options("sft")(engine=AS_CONFIGURED, packing={"tail": AS_CONFIGURED, "row_len": None})) == {}


@given(st.sets(st.sampled_from(sorted(VALUES))))
@settings(max_examples=examples(20), deadline=None)
def test_the_launchpad_shows_what_is_configured_and_sets_what_differs(paths: set[str]) -> None:
    configured = Workspace.open().declared(FAMILIES["sft"])
    kind, values = options("sft", configured), nested({path: VALUES[path] for path in sorted(paths)})
    shown = kind().model_dump()
    for path, value in {
        "packing.row_len": 1024,
        "packing.seed": 42,
        "template": "tokenizer",
        "train_on_eos": "turn",
        "workers": "auto",
    }.items():
        found: Any = shown
        for key in path.split("."):
            found = found[key]
        assert found == value, path
    plain = configured.model_dump()
    differ = {path: VALUES[path] for path in paths if VALUES[path] != functools.reduce(operator.getitem, path.split("."), plain)}
    assert chosen(kind(**values)) == nested(differ)
    assert chosen(kind.model_validate({**shown, "template": None})) == {}


# -- in a run ---------------------------------------------------------------------------------------------------------------------------


def columns(stores: Path) -> int:
    with h5py.File(stores / "sft_packed" / "current" / "sft_packed.h5") as file:
        return int(file["tokens"].shape[1])


def test_options_of_one_run_make_a_draft_and_current_does_not_move(built: Path, instance: dg.DagsterInstance) -> None:
    """They leaked: the next run packed what one run had tried out, and everything called it current."""
    assert run(instance, "sft_packed").success
    before = materializations(instance, "sft_packed")
    result = run(instance, "sft_packed", options={"sft_packed": {"packing": {"row_len": 256}}})
    assert result.success
    assert columns(built) == 1024
    workspace = Workspace.open()
    assert state(workspace, SHIPPED_ASSETS["sft_packed"]) == "current"
    draft = workspace.place("sft_packed").draft()
    assert draft is not None and draft.manifest.recipe["packing"]["row_len"] == 256
    # Dagster has seen it, and nothing is materialized, stale or failed for it
    assert materializations(instance, "sft_packed") == before and stale(instance, "sft_packed") == []
    [seen] = [record.asset_observation for record in instance.fetch_observations(dg.AssetKey("sft_packed"), limit=9).records]
    assert seen is not None
    assert seen.metadata["draft"].value is True and seen.metadata["overrides"].value == ["packing.row_len"]
    assert all(evaluations(instance, "sft_packed", check)[0].passed for check in checks_of("sft_packed"))


def test_what_the_launchpad_shows_makes_no_draft(built: Path, instance: dg.DagsterInstance) -> None:
    shown = options("sft", Workspace.open().declared(FAMILIES["sft"]))().model_dump(exclude_none=True)
    assert shown["packing"]["row_len"] == 1024
    assert run(instance, "sft_packed", options={"sft_packed": shown}).success
    workspace = Workspace.open()
    assert (workspace.place("sft_packed").draft(), state(workspace, SHIPPED_ASSETS["sft_packed"])) == (None, "current")


def test_a_draft_upstream_is_not_what_is_packed(built: Path, instance: dg.DagsterInstance) -> None:
    before = Workspace.open().published("sft_packed")
    options = {"sft_tokens": {"mask": {"user": "train"}}}
    assert run(instance, "sft_tokens", partition="dolly", options=options).success
    assert run(instance, "sft_packed").success
    assert Workspace.open().published("sft_packed") == before


def test_options_of_one_run_are_published_where_that_is_asked_for_and_say_so(built: Path, instance: dg.DagsterInstance) -> None:
    assert run(instance, "sft_packed", options={"sft_packed": {"packing": {"row_len": 256}, "publish": True}}).success
    assert columns(built) == 256
    assert materializations(instance, "sft_packed")[0].metadata["overrides"].value == ["packing.row_len"]
    standing = Statuses(Workspace.open()).at(SHIPPED_ASSETS["sft_packed"], "")
    assert (standing.state, standing.overrides) == ("current", ("packing.row_len",))
    # a run without options follows the file again
    assert run(instance, "sft_packed").success
    assert columns(built) == 1024
    assert "overrides" not in materializations(instance, "sft_packed")[0].metadata


def test_what_was_published_with_options_is_known_downstream(built: Path, instance: dg.DagsterInstance) -> None:
    options = {"sft_tokens": {"mask": {"user": "train"}, "publish": True}}
    assert run(instance, "sft_tokens", partition="dolly", options=options).success
    workspace = Workspace.open()
    assert Statuses(workspace).at(SHIPPED_ASSETS["sft_packed"], "").state == "stale"
    assert run(instance, "sft_packed").success
    standing = Statuses(workspace).at(SHIPPED_ASSETS["sft_packed"], "")
    assert (standing.state, standing.overrides, standing.inherited) == ("current", (), ("sft_tokens[dolly]: mask.user",))


# -- what is refused --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asset", "config", "said"),
    [
        ("sft_packed", {"packing": {"strategy": "best"}}, "bfd_split"),
        ("sft_packed", {"output": {"storage_format": "hdf5"}}, "h5"),
        ("sft_packed", {"on_missing": "bild"}, "build"),
        ("sft_packed", {"packing": {"row_length": 5}}, "row_len"),
        ("sft_packed", {"packing": {"row_len": "long"}}, "row_len"),
        ("sft_packed", {"packing": {"weights": {"gsm8k": "half"}}}, "weights"),
        ("sft_packed", {"domains": {}}, "domains"),
        ("preferences_by_domain", {"form": "txt"}, "messages"),
        ("rl_tokens", {"packing": {"row_len": 5}}, "packing"),
    ],
)
def test_a_wrong_word_or_type_is_refused_at_launch(asset: str, config: dict[str, Any], said: str) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match=said):
        dg.validate_run_config(JOB, {"ops": {asset: {"config": config}}})


@pytest.mark.parametrize(
    ("asset", "config", "key"),
    [
        ("sft_packed", {"packing": {"row_len": 0}}, "packing.row_len: Input should be greater than or equal to 2 (found 0)"),
        ("arithmetic_prompts", {"arithmetic": {"n": 0}}, "arithmetic.n: Input should be greater than or equal to 1 (found 0)"),
    ],
)
def test_a_number_out_of_bounds_is_a_failure_that_names_file_and_key(
    built: Path, instance: dg.DagsterInstance, asset: str, config: dict[str, Any], key: str
) -> None:
    shutil.rmtree(built / asset)
    result = run(instance, asset, options={asset: config})
    assert not result.success
    message = failures(result)
    assert message.startswith(f"{asset}: ")
    assert f"configs/{SHIPPED_ASSETS[asset].family}.yaml with this run's options" in message
    assert key in message
    assert not (built / asset).exists()


@pytest.mark.parametrize(
    ("asset", "partition", "config", "said"),
    [
        ("sft_packed", None, {"template": "chatml"}, "template: it is an option of sft_template, sft_tokens"),
        ("sft_packed", None, {"packing": {"row_len": 256}, "mask_default": "train"}, "mask_default: it is an option of sft_tokens"),
        ("sft_tokens", "dolly", {"packing": {"row_len": 256}}, "packing.row_len: it is an option of sft_packed"),
        ("sft_raw", "dolly", {"mask": {"user": "train"}}, "mask.user: it is an option of sft_tokens"),
    ],
)
def test_an_option_that_cannot_apply_is_refused(
    built: Path, instance: dg.DagsterInstance, asset: str, partition: str | None, config: dict[str, Any], said: str
) -> None:
    """It was accepted and ignored: "nothing to do", success."""
    result = run(instance, asset, partition=partition, options={asset: config})
    assert not result.success
    assert "itself has no such options" in failures(result)
    assert said in failures(result)
