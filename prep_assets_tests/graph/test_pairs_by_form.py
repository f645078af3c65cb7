"""Pairs that are cut by the forms of their conversations are those that are rendered one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.caches import CACHES
from prep_assets.pipeline.pairs import PairEncoder
from prep_assets.text import forms
from prep_assets_tests.effort import examples
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, workspace_in

TEXTS = st.sampled_from(
    [
        "Hi",
        "Well, 2 + 2 = 4.",
        " amid white space\n",
        "",
        " ",
        "<|im_end|>",
        "a <think>b</think> c",
        "<think>b</think> c",
        "<think>b",
        "中文 😀",
        "\ud800",
        "Hi ",
    ]
)
PROMPTS = st.one_of(
    TEXTS,
    st.lists(TEXTS, min_size=1, max_size=3).map(
        lambda texts: [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]
    ),
)
ANSWERS = st.one_of(
    TEXTS,
    TEXTS.map(lambda text: [{"role": "assistant", "content": text}]),
    TEXTS.map(lambda text: [{"role": role, "content": text} for role in ("assistant", "user", "assistant")]),
)
ROWS = st.lists(st.fixed_dictionaries({"prompt": PROMPTS, "chosen": ANSWERS, "rejected": ANSWERS}), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("template", "truncation", "reasoning"),
    [("chatml", "drop", "field"), ("plain", "end", "auto"), ("qwen3", "end", "auto"), ("plain", "drop", "inline")],
)
def test_by_form_and_one_by_one(template: str, truncation: str, reasoning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = jsonl(tmp_path / "pairs.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}])
    options = {"template": template, "truncation": truncation, "reasoning": reasoning, "preprocessing": {"max_seq_len": 40}}
    workspace = workspace_in(tmp_path, minimal("preference", {"pairs": domain(source, "preference")}, **options))
    by_form = set()

    def encoded(rows: list[dict[str, Any]], learn_after: int) -> Any:
        monkeypatch.setattr(forms, "LEARN_AFTER", learn_after)
        CACHES["plain chats"].clear()
        quarantine, encoder = Mock(), PairEncoder(workspace)
        kept, sides = encoder.encode(rows, 0, quarantine)
        by_form.add((learn_after, encoder._plain.compared > 0))
        columns = {side: [each.tolist() if isinstance(each, np.ndarray) else each for each in found] for side, found in sides.items()}
        return kept, columns, [call.args[:3] for call in quarantine.add.call_args_list]

    @settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
    @given(ROWS)
    def check(rows: list[dict[str, Any]]) -> None:
        assert encoded(rows, 0) == encoded(rows, 1 << 40)

    check()
    assert (0, True) in by_form and (1 << 40, True) not in by_form
