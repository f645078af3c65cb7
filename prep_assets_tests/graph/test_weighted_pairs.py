"""Preference pairs keep the loss weights of their answers, from the source to the masks; what cannot say them refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets.config.models import Preference
from prep_assets.errors import ConfigError
from prep_assets.exports import export
from prep_assets.graph.selftest import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.mutations import PAIR_MUTATIONS
from prep_assets.proofs.rows import Line
from prep_assets.stores.lines import open_lines
from prep_assets.stores.tokens import open_tokens
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build_all, domain, failing, jsonl, minimal, part_of, refusals


def array(chosen: list[tuple[str, float]], rejected: list[tuple[str, float]]) -> dict[str, Any]:
    """A pair as a semantic data array."""
    sides = {"chosen": chosen, "rejected": rejected}
    answers = [
        {"type": side, "content": [{"part": text} for text, _ in parts], "semantic_loss_weight": [weight for _, weight in parts]}
        for side, parts in sides.items()
    ]
    return {"semantic_data_array": [{"type": "prompt", "content": [{"q": "Why?"}]}, *answers]}


ROWS = [
    array([("Not this.", 0), (" But this.", 1)], [("No.", 1)]),
    array([("Plain.", 1)], [("Never.", 1)]),
    array([("Half.", 0.5)], [("No.", 1)]),
]


def built(make: Make, tmp_path: Path, form: str) -> Workspace:
    own = domain(jsonl(tmp_path / "rows.jsonl", ROWS), "semantic")
    workspace = make(minimal("preference", {"d": own}, test_fraction=0.0, shuffle=False, form=form))
    build_all(workspace, ["preference"])
    return workspace


def test_answers_keep_their_weights(make: Make, tmp_path: Path) -> None:
    """`semantic_loss_weight` of chosen and rejected was read and lost: all of both was trained."""
    workspace = built(make, tmp_path, "auto")
    pairs, tokens = workspace.published("preferences"), workspace.published("preference_tokens")
    assert pairs is not None and tokens is not None
    assert [each.reason for each in refusals(part_of(workspace, "preferences", "d"))] == ["fractional_weight"]
    rows = list(open_lines(pairs.directory, "preferences"))
    parts = [{"type": "text", "text": "Not this.", "loss_weight": 0.0}, {"type": "text", "text": " But this.", "loss_weight": 1.0}]
    assert rows[0]["chosen"] == [{"role": "assistant", "content": parts}]
    assert rows[1]["chosen"] == [{"role": "assistant", "content": "Plain."}]
    vocabulary = workspace.vocabulary(workspace.family(Preference))
    store = open_tokens(tokens.directory, "chosen")
    trained = [
        vocabulary.backend.decode(store.record(n, "tokens")[store.record(n, "loss_mask") != 0].tolist(), False) for n in range(len(store))
    ]
    assert [text.strip() for text in trained] == ["But this.<|im_end|>", "Plain.<|im_end|>"]
    assert failing(workspace, pairs) == [] and failing(workspace, tokens) == []


def test_strings_cannot_say_them(make: Make, tmp_path: Path) -> None:
    workspace = built(make, tmp_path, "text")
    pairs = workspace.published("preferences")
    assert pairs is not None
    assert [each.reason for each in refusals(part_of(workspace, "preferences", "d"))] == ["not_plain_text", "fractional_weight"]


@pytest.mark.parametrize(("format", "options"), [("hf_arrow", {}), ("tlfs", {})])
def test_text_exports_refuse_rows_whose_weights_no_trainer_reads(make: Make, tmp_path: Path, format: str, options: dict[str, Any]) -> None:
    workspace = built(make, tmp_path, "auto")
    pairs = workspace.published("preferences")
    assert pairs is not None
    with pytest.raises(ConfigError, match=r"line 1|text"):
        export(pairs, format, tmp_path / "out", stream="preferences", **options)


def test_selftest_spoils_weights(make: Make, tmp_path: Path) -> None:
    """Pairs had no corruptions of the weights of their answers."""
    workspace = built(make, tmp_path, "auto")
    pairs, tokens = workspace.published("preferences"), workspace.published("preference_tokens")
    assert pairs is not None and tokens is not None
    trials = selftest(workspace, part_of(workspace, "preferences", "d"))
    assert [(trial.tried, trial.caught) for trial in trials if "loss weights" in trial.mutation] == [(1, 1), (1, 1)]
    assert [trial for trial in [*trials, *selftest(workspace, tokens)] if not trial.passed] == []


def test_answers_that_are_calls_or_parts_can_be_spoilt() -> None:
    """The selftest ended with a KeyError on them."""
    call = [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {}}}]}]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "Yes.", "loss_weight": 1.0}]}]
    lines = [Line("a:0", {"prompt": "Why?", "chosen": call, "rejected": parts}, None, None)]
    found = {mutation.name: mutation.change(lines, 0) for mutation in PAIR_MUTATIONS}
    assert found["a better answer truncated"] is None
    spoilt = found["a worse answer truncated"]
    assert spoilt is not None and spoilt[0].stored["rejected"][0]["content"][0]["text"] == "Ye"
