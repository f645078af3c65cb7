"""Pairs that are too long are cut at their end, as train-llm-from-scratch cuts them, and held-out pairs are tokenized as the others are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from prep_assets.explain.trace import trace
from prep_assets.exports import export
from prep_assets.exports.readable import Pairs, open_source
from prep_assets.graph.selftest import selftest
from prep_assets.stores.lines import open_lines
from prep_assets.stores.open import open_store
from prep_assets.stores.tokens import open_tokens
from prep_assets.training import PairDataset
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import TOKENIZER, build_all, domain, failing, jsonl, minimal, part_of, refusals

LIMIT = 24
LONG = "This prompt alone has more tokens than a side of a pair may have, so that nothing at all of an answer is left of it, sadly."
ROWS = [
    *({"prompt": f"What is {n}?", "chosen": f"It is {n}.", "rejected": "No idea."} for n in range(20)),
    {"prompt": "Count.", "chosen": "one two three four five six seven eight nine ten eleven twelve", "rejected": "No."},
    {
        "prompt": "Again.",
        "chosen": "one two three four five six seven eight nine ten, yes",
        "rejected": "one two three four five six seven eight nine ten, no",
    },
    {"prompt": LONG, "chosen": "Yes.", "rejected": "No."},
]


def reference(row: dict[str, Any], side: str, limit: int | None = LIMIT) -> tuple[list[int], list[int]]:
    """What train-llm-from-scratch makes of a side: each part encoded alone, the end of text after every turn, all cut on the right."""
    tokenizer = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    tokenizer.encode_special_tokens = True
    end = tokenizer.token_to_id("<|endoftext|>")
    ids: list[int] = []
    mask: list[int] = []
    for role, text in (("user", row["prompt"]), ("assistant", row[side])):
        header, content = (tokenizer.encode(part, add_special_tokens=False).ids for part in (f"<|{role}|>\n", text))
        ids += [*header, *content, end]
        mask += [0] * len(header) + [int(role == "assistant")] * (len(content) + 1)
    return ids[:limit], mask[:limit]


@pytest.mark.parametrize("storage", ["h5", "bin"])
def test_a_side_keeps_its_first_tokens(make: Make, tmp_path: Path, storage: str) -> None:
    rows = domain(jsonl(tmp_path / "rows.jsonl", ROWS), "preference")
    options: dict[str, Any] = {"template": "plain", "truncation": "end", "preprocessing": {"max_seq_len": LIMIT}, "test_fraction": 0.3}
    workspace = make(minimal("preference", {"d": rows}, output={"storage_format": storage}, **options))
    build_all(workspace, ["preference"])
    pairs, tokens = workspace.published("preferences"), workspace.published("preference_tokens")
    assert pairs is not None and tokens is not None
    assert not failing(workspace, tokens)
    assert sorted(each.reason for each in refusals(part_of(workspace, "preference_tokens", "d"))) == [
        "equal_after_truncation",
        "nothing_to_train",
    ]
    counts, gone = tokens.manifest.counts, 0
    assert counts["kept"] == 21 and 0 < counts["kept_test"] < 21
    for folder, name in (("", "preferences"), ("test", "preferences_test")):
        lines = list(open_lines(pairs.directory, name))
        for side in ("chosen", "rejected"):
            store = open_tokens(tokens.directory / folder, side)
            for number, line in enumerate(store.row.tolist()):
                found = store.record(number, "tokens").tolist(), store.record(number, "loss_mask").tolist()
                assert found == reference(lines[line], side)
                gone += len(reference(lines[line], side, None)[0]) - len(found[0])
    assert counts["tokens_cut_away"] == gone > 0
    trials = [*selftest(workspace, tokens), *selftest(workspace, part_of(workspace, "preference_tokens", "d"))]
    assert all(trial.passed for trial in trials) and any(trial.tried for trial in trials if trial.mutation)


def test_pairs_that_are_held_out_are_read_as_the_others(make: Make, tmp_path: Path) -> None:
    rows = domain(jsonl(tmp_path / "rows.jsonl", ROWS), "preference")
    exports = {"held": {"from": "preference_tokens", "to": "hf_arrow", "stream": "test", "options": {"layout": "trl"}}}
    workspace = make(minimal("preference", {"d": rows}, test_fraction=0.3, exports=exports))
    build_all(workspace, ["preference"])
    tokens = workspace.published("preference_tokens")
    assert tokens is not None
    held = open_source(tokens, "test")
    assert isinstance(held, Pairs) and len(held) == tokens.manifest.counts["kept_test"]
    dataset = PairDataset(open_store(tokens.directory / "test"))
    assert len(dataset) == len(held)
    assert dataset[0]["chosen"].tolist() == held.chosen.record(0, "tokens").tolist()
    assert len(PairDataset(open_store(tokens.directory))) == tokens.manifest.counts["kept"] - len(held)
    written = export(tokens.directory / "test", "astrai", tmp_path / "out")
    assert len(PairDataset(open_store(written))) == len(held)
    traced = trace(workspace, "preference_tokens", 0, stream="test/rejected")
    assert traced.pieces[0].source is not None and not traced.differs


def test_without_held_out_pairs_there_is_no_folder(make: Make, tmp_path: Path) -> None:
    workspace = make(minimal("preference", {"d": domain(jsonl(tmp_path / "rows.jsonl", ROWS), "preference")}, test_fraction=0.0))
    build_all(workspace, ["preference"])
    tokens = workspace.published("preference_tokens")
    assert tokens is not None and not (tokens.directory / "test").exists()
    assert not failing(workspace, tokens)
    assert np.array_equal(open_tokens(tokens.directory, "chosen").row, np.arange(23))
