"""Rows of token ids: what each spelling of a mask says; words whose tokens are masked; a store of prompts that a model judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.samples import ASSISTANT, USER
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in

CHAT = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "1."}]


def read(row: dict[str, Any], **options: Any) -> tuple[list[int], list[float]]:
    found = apply(convert_with("tokenized", options), row).tokenized  # type: ignore[union-attr]
    assert found is not None
    return list(found.ids), list(found.weights)


@pytest.mark.parametrize(
    ("row", "options", "ids", "weights"),
    [
        # TRL, axolotl and LLaMA-Factory: labels at the place of their token
        ({"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}, {}, [1, 2, 3], [0, 1, 1]),
        ({"input_ids": [1, 2, 3], "labels": [-100, -100, 3], "attention_mask": [1, 1, 1]}, {}, [1, 2, 3], [0, 0, 1]),
        # padding on either side is not stored
        ({"input_ids": [0, 1, 2, 0], "labels": [-100, -100, 2, -100], "attention_mask": [0, 1, 1, 0]}, {}, [1, 2], [0, 1]),
        # TRL's two masks, of which both must be 1
        ({"input_ids": [1, 2, 3], "completion_mask": [0, 1, 1], "assistant_masks": [1, 0, 1]}, {}, [1, 2, 3], [0, 0, 1]),
        ({"input_ids": [1, 2, 3], "labels": [1, 2, 3], "completion_mask": [0, 0, 1]}, {}, [1, 2, 3], [0, 0, 1]),
        ({"input_ids": [1, 2, 3], "loss_mask": [0, 0.5, True]}, {}, [1, 2, 3], [0, 0.5, 1]),
        # SkyRL: a prompt and a response, the mask as long as the response
        ({"prompt_ids": [1, 2], "completion_ids": [3, 4]}, {}, [1, 2, 3, 4], [0, 0, 1, 1]),
        (
            {"prompt_token_ids": [1, 2], "response_ids": [3, 4], "loss_masks": [0, 1]},
            {"prompt_ids_key": "prompt_token_ids", "completion_ids_key": "response_ids", "mask_keys": ["loss_masks"]},
            [1, 2, 3, 4],
            [0, 0, 0, 1],
        ),
        # Cerebras: labels one place before their token, the last token among them alone, a loss mask under the name attention_mask
        ({"input_ids": [1, 2, 3], "labels": [-100, 3, 4]}, {"shifted": True}, [1, 2, 3, 4], [0, 0, 1, 1]),
        ({"input_ids": [1, 2, 3], "labels": [-100, 3, -100]}, {"shifted": True}, [1, 2, 3], [0, 0, 1]),
        ({"input_ids": [1, 2, 3], "loss_mask": [0, 1, 0]}, {"shifted": True}, [1, 2, 3], [0, 0, 1]),
        (
            {"input_ids": [1, 2, 3, 0], "attention_mask": [0, 1, 1, 0], "labels": [2, 3, 0, 0]},
            {"shifted": True, "mask_keys": ["attention_mask"]},
            [1, 2, 3, 0],
            [0, 0, 1, 1],
        ),
    ],
)
def test_ids_and_weights(row: dict[str, Any], options: dict[str, Any], ids: list[int], weights: list[float]) -> None:
    assert read(row, **options) == (ids, weights)


def test_text_and_messages_stay_beside_the_ids_as_evidence() -> None:
    sample = apply(
        convert_with("tokenized"), {"input_ids": [1, 2], "labels": [-100, 2], "text": "ab", "messages": CHAT, "position_ids": [0, 1]}
    )
    assert sample.tokenized.text == "ab"  # type: ignore[union-attr]
    assert [turn.role for turn in sample.turns] == [USER, ASSISTANT]  # type: ignore[union-attr]


def test_cerebras_hook_for_language_generation_hands_over_ids() -> None:
    """Their documentation: context and completion are lists of token ids; their own code ends with a NameError there."""
    found = apply(convert_with("nlg_read_hook"), {"context": [5, 6], "completion": [7]}).tokenized  # type: ignore[union-attr]
    assert found is not None and (found.ids, found.weights) == ((5, 6, 7), (0.0, 0.0, 1.0))


COMMON = {"the", "be", "to", "of", "and", "a", "in", "that", "have", "I", "am"}


def chunks_of_the_hook(text: str) -> list[tuple[str, float]]:
    """Word by word: a chunk ends where a common word follows an uncommon one or the other way round."""
    chunks: list[tuple[str, float]] = []
    for word in text.split():
        weight = 0.0 if word in COMMON else 1.0
        if chunks and chunks[-1][1] == weight:
            chunks[-1] = (f"{chunks[-1][0]} {word}", weight)
        else:
            chunks.append(((" " if chunks else "") + word, weight))
    return chunks


def regions(row, name="common_words_mask", **options):
    completion = apply(convert_with(name, options), row).turns[1]
    return [(region.text, region.loss_weight) for region in completion.regions]


words = st.lists(st.sampled_from([*sorted(COMMON), "The", "cat", "x.", "am,"]), min_size=1, max_size=12)


def two_messages(answer: str, **more: Any) -> dict[str, Any]:
    return {"prompt": "p", "messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": answer, **more}]}


@given(words)
def test_single_spaced_text_gives_the_hooks_chunks(chosen: list[str]) -> None:
    text = " ".join(chosen)
    expected = chunks_of_the_hook(text)
    assert regions({"prompt": "p", "completion": text}) == expected
    assert regions(two_messages(text), "ultra_chat_common_words_mask_hook") == expected


@given(st.text(alphabet=" \n\tabtheI.", max_size=40).filter(str.strip))
def test_no_character_is_lost_or_changed(text: str) -> None:
    assert "".join(chunk for chunk, _ in regions({"prompt": "p", "completion": text})) == text


def test_a_store_of_them_passes_every_check(tmp_path: Path) -> None:
    rows = [{"instruction": f"Write haiku {n}.", "input": "", "note": ""} for n in range(20)]
    workspace = workspace_in(
        tmp_path / "here", minimal("rl", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "PPOAlpacaStyleInstructionHandler")})
    )
    build(workspace, "rl_raw", "a")
    published = build(workspace, "rl_prompts")
    lines = [json.loads(line) for path in published.directory.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    assert len(lines) == 20 and all((line["gold"], line["verifier"]) == ("", "model") for line in lines)
