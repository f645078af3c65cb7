"""Groups with the token ids that a model sampled: stored unchanged, with their log-probabilities, and drift counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.graph.graph import assets_of
from prep_assets.graph.selftest import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.mutations import ROLLOUT_MUTATIONS
from prep_assets.stores.groups import open_groups
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, failing, jsonl, make, refusals, resealed, verdicts, workspace_in

KEYS = {"token_ids_key": "token_ids", "logprobs_key": "logprobs"}
BACKEND = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
STOP = BACKEND.token_to_id("<|im_end|>")


def canonical(text: str) -> list[int]:
    return [*BACKEND.encode(text, add_special_tokens=False).ids, STOP]


def spelled(text: str) -> list[int]:
    """The same text in single bytes: what no tokenizer writes and a model may sample."""
    return [*(BACKEND.token_to_id(char) for char in text), STOP]


def rollout(number: int, **more: Any) -> dict[str, Any]:
    texts = [f"It is {number}.", f"maybe{number}"]
    ids = [canonical(texts[0]), spelled(texts[1])]
    logprobs = [[-0.125 * at for at in range(len(each))] for each in ids]
    return {"prompt": f"What is {number}?", "responses": texts, "token_ids": ids, "logprobs": logprobs, "rewards": [1, -0.5], **more}


def built(folder: Path, rows: list[dict[str, Any]], keys: dict[str, str] = KEYS, **options: Any) -> tuple[Workspace, Published]:
    source = jsonl(folder / "rows.jsonl", rows)
    domains = {"rollouts": domain(source, "group", options=keys)}
    family = {"tokenizer": TOKENIZER, "domains": domains, "output": {"storage_format": "bin"}, **options}
    workspace = workspace_in(folder, {"rl": family})
    build(workspace, "rl_raw", "rollouts")
    return workspace, build(workspace, "rl_groups_by_domain", "rollouts")


def test_ids_are_stored_as_they_were_sampled(tmp_path: Path) -> None:
    """vLLM's report of October 2025, verl issue 3720: encoding the decoded rollout gives other ids than were sampled."""
    rows = [rollout(number) for number in range(5)]
    workspace, published = built(tmp_path, rows)
    store = open_groups(published.directory)
    for number, row in enumerate(rows):
        for at, record in enumerate(store.responses_of(number)):
            assert store.responses.record(record, "tokens").tolist() == row["token_ids"][at]
            assert store.responses.record(record, "logprobs").tolist() == row["logprobs"][at]
            assert store.responses.record(record, "loss_mask").all()
        head = f"<|im_start|>user\n{row['prompt']}<|im_end|>\n<|im_start|>assistant\n"
        assert store.prompts.record(number, "tokens").tolist() == BACKEND.encode(head, add_special_tokens=False).ids
    counts = published.manifest.counts
    assert (counts["sampled"], counts["retokenized_otherwise"]) == (10, 5)
    assert failing(workspace, published) == []
    assert "ids of 10 responses are stored as they were sampled" in verdicts(workspace, published)["sampled_ids"].summary


def test_a_prompt_may_have_its_own_ids(tmp_path: Path) -> None:
    rows = [rollout(1, prompt_ids=spelled("What?"))]
    workspace, published = built(tmp_path, rows, {**KEYS, "prompt_ids_key": "prompt_ids"})
    assert open_groups(published.directory).prompts.record(0, "tokens").tolist() == rows[0]["prompt_ids"]
    assert failing(workspace, published) == []


@pytest.mark.parametrize("key", ["tokens", "loss_mask", "logprobs"])
def test_what_was_changed_is_found(tmp_path: Path, key: str) -> None:
    workspace, published = built(tmp_path, [rollout(1), rollout(2)])
    names = {"tokens": "tokens", "loss_mask": "loss_mask", "logprobs": "logprobs"}
    files = [path for path in published.directory.rglob("*.bin") if path.parent.parent.name == "responses"]
    file = next(path for path in files if path.stem in (names[key], "sequence" if key == "tokens" else key))
    dtype = {"tokens": np.int32, "loss_mask": np.uint8, "logprobs": np.float32}[key]
    values = np.fromfile(file, dtype)
    values[1] = {"tokens": values[1] + 1, "loss_mask": 0, "logprobs": -9}[key]
    values.tofile(file)
    assert "sampled_ids" in failing(workspace, resealed(published))


TURNS = [{"role": role, "content": "a"} for role in ("assistant", "user", "assistant")]
BAD = {
    "schema/length_mismatch": {"logprobs": [[-1.0], [-1.0]]},
    "schema/positive_logprob": {"logprobs": [[0.5] * len(each) for each in rollout(1)["token_ids"]]},
    "schema/wrong_type": {"token_ids": [["a"], [1]]},
    "schema/missing_field": {"token_ids": None},
    "tokenize/id_outside_vocabulary": {"token_ids": [[10**6] * len(each) for each in rollout(1)["token_ids"]]},
    "tokenize/ids_differ_from_text": {"responses": ["It is 1.", "something else"]},
    "tokenize/too_long": {"prompt": "long " * 300},
    "group/sampled_ids_without_mask": {
        "responses": [
            "It is 1.",
            [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}],
        ]
    },
}


@pytest.mark.parametrize("reason", BAD)
def test_what_is_refused(tmp_path: Path, reason: str) -> None:
    _, published = built(tmp_path, [rollout(1, **BAD[reason]), rollout(2)], preprocessing={"max_seq_len": 200})
    assert [f"{each.stage}/{each.reason}" for each in refusals(published)] == [reason]
    assert published.manifest.counts["kept"] == 1


def test_log_probabilities_are_in_all_domains_or_in_none(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "rows.jsonl", [rollout(1)])
    domains = {"a": domain(source, "group", options=KEYS), "b": domain(source, "group", options={"token_ids_key": "token_ids"})}
    workspace = workspace_in(tmp_path, {"rl": {"tokenizer": TOKENIZER, "domains": domains}})
    with pytest.raises(ConfigError, match="domains b have no logprobs_key, others have"):
        build(workspace, "rl_groups")


def test_exports_carry_them_or_refuse(tmp_path: Path) -> None:
    exports = {name: {"from": "rl_groups", "to": name} for name in ("hf_arrow", "astrai")}
    rows = [rollout(number) for number in range(3)]
    workspace, _ = built(tmp_path, rows, exports=exports)
    merged = build(workspace, "rl_groups")
    assert merged.manifest.counts["sampled"] == 6 and failing(workspace, merged) == []
    (arrow, astrai) = (next(each for name, each in assets_of(workspace).items() if name.endswith(form)) for form in ("hf_arrow", "astrai"))
    found = make(workspace, arrow)
    (file,) = found.directory.rglob("*.arrow")
    assert pa.ipc.open_stream(file.read_bytes()).read_all()["logprobs"].to_pylist() == [row["logprobs"] for row in rows]
    with pytest.raises(PrepAssetsError, match="no place for log-probabilities"):
        make(workspace, astrai)


def test_every_corruption_of_sampled_ids_is_caught(tmp_path: Path) -> None:
    workspace, published = built(tmp_path, [rollout(number) for number in range(6)])
    trials = [trial for trial in selftest(workspace, published) if trial.check == "sampled_ids" and trial.mutation]
    assert {trial.mutation for trial in trials} == {mutation.name for mutation in ROLLOUT_MUTATIONS}
    assert [trial for trial in trials if not trial.passed or trial.tried != trial.caught] == []
    assert [trial.mutation for trial in trials if not trial.caught] == ["another prompt than was sampled from"]
