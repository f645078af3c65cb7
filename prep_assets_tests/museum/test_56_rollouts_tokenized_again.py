"""The text of a rollout was tokenized again for training, and some texts have other ids than were sampled.

Year: 2025 – 2026
Hit: the vLLM blog of 22 October 2025, verl#3720, #3960, #6719, rllm PR#272, ms-swift PR#10012, sglang PR#26555, trl PR#6250
Cost: Log-probabilities of tokens that nobody sampled; spikes of the KL term.
Stopped by: `rl_groups` stores sampled ids and log-probabilities as they are, and counts where decoding and encoding again differs
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, jsonl, minimal, workspace_in
from prep_assets_tests.museum.gallery import Stand


def test_sampled_ids_stay(tmp_path: Path) -> None:
    backend = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    ids = backend.encode("It is", add_special_tokens=False).ids
    letters = [backend.token_to_id(letter) for letter in "It"]
    drifting = [*letters, *ids[1:]]
    assert backend.decode(drifting) == backend.decode(ids) and drifting != ids
    row = {
        "prompt": "What?",
        "responses": ["It is", "It is"],
        "rewards": [1.0, 0.0],
        "token_ids": [ids, drifting],
        "logprobs": [[-0.5] * len(ids), [-0.25] * len(drifting)],
    }
    source = jsonl(tmp_path / "groups.jsonl", [row])
    keys = {"token_ids_key": "token_ids", "logprobs_key": "logprobs"}
    options = {"engine": "reference", "output": {"storage_format": "bin"}, "arithmetic": {"n": 5}}
    workspace = workspace_in(tmp_path, minimal("rl", {"groups": domain(source, "group", options=keys)}, **options))
    build(workspace, "rl_raw", "groups")
    stand = Stand(workspace, build(workspace, "rl_groups_by_domain", "groups"))
    assert stand.failing() == []
    assert stand.published.manifest.counts["retokenized_otherwise"] == 1
