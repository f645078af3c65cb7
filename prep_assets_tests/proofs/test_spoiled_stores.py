"""The mutation kit: every check passes on a clean store, and every corruption that it claims to see makes it fail.

Manifests are rewritten to fit each corruption, so that `file_hashes` holds and only the named check can tell. What spoils
which store: `SPOILED` of each `spoiled_*.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from prep_assets.config.models import TRAINED
from prep_assets.engine.execute import verdicts_of as in_one_run
from prep_assets.graph.graph import CHECKS, EVERY, run_check
from prep_assets.pipeline.asset import FromRows
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import verdicts
from prep_assets_tests.proofs.corruption import Mutation
from prep_assets_tests.proofs.spoiling import MUTATIONS, spoiled

NONE_HERE = ("sampled_ids", "step_rewards", "runs", "lossless_trace", "teacher", "leaks_again")
"""Checks that may have nothing to look at in clean stores."""


FIRST = [
    *{(each.asset, each.check): each for each in reversed(MUTATIONS)}.values(),
    *{(each.check, each.name): each for each in reversed(MUTATIONS)}.values(),
]
"""Those of `make test`: of the corruptions that a check sees in an asset the first, and of the assets that are spoiled alike the first."""


@pytest.mark.parametrize(
    "mutation",
    [each if any(each is first for first in FIRST) else pytest.param(each, marks=pytest.mark.soak) for each in MUTATIONS],
    ids=lambda m: f"{m.asset}-{m.check}-{m.name}".replace(" ", "_"),
)
def test_a_corruption_is_seen(pristine: Workspace, tmp_path: Path, mutation: Mutation) -> None:
    workspace, published = spoiled(pristine, tmp_path, mutation)
    found = {check.name: check for check in CHECKS[mutation.asset]}
    assert run_check(found["file_hashes"], workspace, published).passed, "hashes alone must not explain it"
    verdict = run_check(found[mutation.check], workspace, published)
    first = next(each for each in MUTATIONS if (each.asset, each.check) == (mutation.asset, mutation.check))
    if mutation is first and isinstance((asset := EVERY[mutation.asset]).source, FromRows):
        # as the engine carries them out, what reads the same sources reads them once
        beside = [
            check
            for name, check in found.items()
            if name in (mutation.check, "tokenization_identity", "source_match", "selection", "source_texts")
        ]
        assert dict(in_one_run(workspace, asset, published, beside))[mutation.check] == verdict
    assert not verdict.passed
    assert verdict.summary and verdict.worst is not None and verdict.worst.where and verdict.worst.note
    assert not verdict.summary.startswith(("the check could not be carried out", "the store cannot be read")), "an accident sees nothing"


def test_clean_stores_pass_and_say_how_much_they_looked_at(pristine: Workspace) -> None:
    for asset, partition in {(mutation.asset, mutation.partition) for mutation in MUTATIONS}:
        published = pristine.published(asset, partition)
        assert published is not None
        for name, verdict in verdicts(pristine, published).items():
            assert verdict.passed, (asset, name, verdict.summary)
            # no group here has sampled ids or judged steps, no chat a teacher, no contrastive row a leak; they have tests of their own
            assert verdict.worst is None and (any(verdict.numbers.values()) or name in NONE_HERE)


def test_every_check_has_a_corruption() -> None:
    """`file_hashes`, which is made to hold here, `sampled_ids`, `step_rewards`, `runs`, `lossless_trace`, `teacher` and `margins` have tests of their own;
    `policy_supported`, `not_blocked` and `no_leaks` are about no payload."""
    elsewhere = {
        ("sft_template", "policy_supported"),
        ("sft_tokens", "teacher"),
        ("preference_tokens_by_domain", "margins"),
        *(("rl_groups_by_domain", name) for name in ("sampled_ids", "step_rewards", "runs", "lossless_trace")),
    }
    elsewhere |= {(f"{family}_quality", "not_blocked") for family in TRAINED}
    elsewhere |= {(f"{family}_leaks", "no_leaks") for family in TRAINED}
    covered = {(mutation.asset, mutation.check) for mutation in MUTATIONS} | elsewhere
    assert covered == {(asset, check.name) for asset, checks in CHECKS.items() for check in checks if check.name != "file_hashes"}


def test_a_template_without_a_stop_token_cannot_support_a_mask_that_trains_it(stores: Workspace) -> None:
    published = stores.published("sft_template")
    assert published is not None and verdicts(stores, published)["policy_supported"].passed
    path = stores.configs / "sft.yaml"
    (stores.configs / "endless.jinja").write_text("{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}")
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "template": "endless.jinja"}))
    assert not verdicts(Workspace(stores.configs, stores.stores), published)["policy_supported"].passed
