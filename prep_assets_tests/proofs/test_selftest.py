"""Selftest: every corruption of every family is caught by the check that is named for it, on copies of a user's own rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from prep_assets.config.models import TRAINED
from prep_assets.extensions.selftest import trials as module
from prep_assets.extensions.selftest.mutations import IMAGE_MUTATIONS, MUTATIONS, TEXT_MUTATIONS
from prep_assets.extensions.selftest.stores import TESTED, selftest, text_trials
from prep_assets.extensions.selftest.trials import Trial
from prep_assets.graph.graph import CHECKS, EVERY, assets_of, store_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets_tests.effort import thinned
from prep_assets_tests.proofs.words import record


def trials_of(workspace: Workspace, asset: str) -> list[Trial]:
    """Trials of the store of an asset's first partition."""
    published = workspace.published(asset, assets_of(workspace)[asset].partitions(workspace)[0])
    assert published is not None
    return selftest(workspace, published)


@pytest.fixture(scope="module")
def trials(pristine: Workspace) -> dict[str, list[Trial]]:
    return {asset: trials_of(pristine, asset) for asset in TESTED}


@pytest.mark.parametrize("asset", TESTED)
def test_every_corruption_is_caught(trials: dict[str, list[Trial]], asset: str) -> None:
    assert [trial for trial in trials[asset] if not trial.passed] == []
    assert [trial for trial in trials[asset] if not trial.mutation], "the clean rows are looked at first"


def test_all_that_hold_tokens_or_lines_are_tried() -> None:
    assert {*TESTED} == {name for name, asset in EVERY.items() if asset.streams or asset.stage in ("quality", "leaks", "blend")}


def test_there_are_many_of_every_family(pristine: Workspace, trials: dict[str, list[Trial]]) -> None:
    """What fits no row counts for nothing."""
    found = {(trial.mutation, trial.check) for each in trials.values() for trial in each if trial.mutation and trial.caught}
    assert len(found) >= 75
    known = assets_of(pristine)
    assert {known[asset].family for asset in TESTED if any(trial.caught for trial in trials[asset] if trial.mutation)} == {*TRAINED}
    checks, caught = {check.name for asset in TESTED for check in CHECKS[asset]}, {check for _, check in found}
    assert caught - checks == {"near_duplicates", "gpt3"}, "a step, and a rule"
    of_stores = {"file_hashes", "accounting", "not_blocked", "verdicts_again", "no_leaks"}
    assert checks - caught == of_stores | {"lossless_trace", "margins", "runs", "sampled_ids", "step_rewards", "teacher"}, (
        "of these, no row here has any"
    )


def test_what_fits_no_row_says_so(trials: dict[str, list[Trial]]) -> None:
    """These pairs have no labelled answers whose label could be inverted."""
    [label] = [trial for trial in trials["preferences_by_domain"] if trial.mutation == "a label inverted"]
    assert (label.tried, label.caught) == (0, 0)


def test_texts_of_chats_and_pairs(pristine: Workspace) -> None:
    stores = [pristine.published(*name) for name in (("sft_tokens", "chats"), ("preferences_by_domain", "ultrafeedback"))]
    found = [trial for store in stores if store for trial in text_trials(store_of(pristine, store))]
    assert {trial.mutation for trial in found if trial.caught} == {"", *(mutation.name for mutation in TEXT_MUTATIONS)}
    assert all(trial.passed for trial in found)


BLINDED = {"mask_alignment": "prove_masks", "tokenization_identity": "prove_identity", "row_integrity": "check_rows"}


@pytest.mark.parametrize("check", thinned(BLINDED))
def test_a_check_that_sees_nothing_is_found_out(pristine: Workspace, monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    """With a check that always passes, selftest reports each corruption that is this check's to catch, and no other."""
    monkeypatch.setattr(module, BLINDED[check], lambda *_, **__: Verdict(True, "all is well", {}))
    trials = selftest(pristine, pristine.built("sft_tokens", "chats"))
    missed = {trial.mutation for trial in trials if not trial.passed}
    assert missed == {mutation.name for mutation in MUTATIONS if mutation.caught_by == check and mutation not in IMAGE_MUTATIONS}
    assert all(trial.caught == 0 for trial in trials if trial.mutation in missed)


def test_a_check_that_always_fails_is_found_out_by_the_clean_rows(pristine: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "prove_masks", lambda *_, **__: Verdict(False, "everything is wrong", {}))
    clean = selftest(pristine, pristine.built("sft_tokens", "chats"))[0]
    assert (clean.mutation, clean.passed, clean.caught, clean.tried) == ("", False, 2, 3)
    assert "everything is wrong" in clean.shown


def test_masks_that_are_equal_once_they_have_changed_places_are_no_corruption() -> None:
    [swapped] = [mutation for mutation in MUTATIONS if mutation.name == "masks of two records swapped"]
    periodic = [record("", np.zeros(count, np.int64), np.resize([0, 1], count)) for count in (4, 6)]
    assert swapped.change(periodic, 0, None) is None
    other = [*periodic[:1], replace(periodic[1], mask=np.array([0, 0, 0, 1, 1, 1]))]
    changed = swapped.change(other, 0, None)
    assert any(not np.array_equal(row.mask, before.mask) for row, before in zip(changed, other, strict=True))
