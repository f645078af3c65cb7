"""Rows of token ids: what each spelling of a mask says, and each way in which a row contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import ASSISTANT, USER
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with

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


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"input_ids": [1, 2]}, "no_mask"),
        ({"labels": [1]}, "missing_field"),
        ({"input_ids": [1, 2], "labels": [1]}, "length_mismatch"),
        ({"input_ids": [1, 2], "loss_mask": [1]}, "length_mismatch"),
        ({"input_ids": [1, 2], "loss_mask": [1, 1], "attention_mask": [1]}, "length_mismatch"),
        ({"input_ids": [], "labels": []}, "empty_text"),
        ({"input_ids": [1, 2], "labels": [1, 2], "attention_mask": [0, 0]}, "empty_text"),
        ({"input_ids": [1, True], "labels": [1, 1]}, "wrong_type"),
        ({"input_ids": [1, 2.0], "labels": [1, 2]}, "wrong_type"),
        ({"input_ids": [1, 1 << 70], "labels": [1, 1]}, "wrong_type"),
        ({"input_ids": [1, 2], "loss_mask": [0, "1"]}, "wrong_type"),
        ({"input_ids": [1, 2], "loss_mask": [0, -1]}, "bad_weight"),
        ({"input_ids": [1, 2], "loss_mask": [0, float("nan")]}, "bad_weight"),
        ({"input_ids": [1, 2, 3], "labels": [2, 3, -100]}, "labels_shifted"),
        ({"input_ids": [1, 2, 3], "labels": [-100, 2, 4]}, "labels_differ"),
        ({"input_ids": [1, 2], "labels": [-100, 2], "loss_mask": [1, 1]}, "masks_disagree"),
        ({"input_ids": [1, 2, 3], "loss_mask": [0, 0, 1], "attention_mask": [1, 0, 1]}, "attention_hole"),
        ({"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1], "attention_mask": [1, 1, 0]}, "trained_padding"),
        ({"input_ids": [1, 2], "labels": [-100, 2], "attention_mask": [1, 2]}, "wrong_type"),
        ({"input_ids": [1, 2], "labels": [-100, 2], "seq_lengths": [1, 1]}, "packed_row"),
        ({"input_ids": [1, 2], "labels": [-100, 2], "position_ids": [0, 0]}, "packed_row"),
        ({"input_ids": [1, 2], "labels": [-100, 2], "messages": [CHAT[0], {**CHAT[1], "weight": 0}]}, "masks_disagree"),
    ],
)
def test_rows_that_contradict_themselves_are_refused(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused) as caught:
        read(row)
    assert caught.value.reason == reason


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


def test_a_loss_mask_under_the_name_of_the_attention_stands_alone() -> None:
    with pytest.raises(ConfigError, match="stands alone"):
        convert_with("tokenized", {"mask_keys": ["attention_mask", "loss_mask"]})
