"""The matrix: templates × kinds of chat. Each cell has the ids and the mask of the reference, or is refused for a reason that holds.

The reference is transformers' render, and the published format of each model written down as a pattern; where a template or TRL's training variant
has generation tags, transformers' mask of these as well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from prep_assets_tests.docs.pages import DOCS, read
from prep_assets_tests.effort import thinned
from prep_assets_tests.text.matrix.cells import Cell, Entry, cell, published, shipped, small
from prep_assets_tests.text.matrix.chats import KINDS
from prep_assets_tests.text.matrix.models import MODELS
from prep_assets_tests.text.matrix.page import legend, with_table

PAGE = DOCS / "templates" / "matrix.md"
WRITE = "PREP_ASSETS_WRITE_DOCS"

PLAIN = ("plain", "system", "multi")
THINKING = (*PLAIN, "think", "think-multi")
TOOLS = (*PLAIN, "tool", "steps", "rounds", "call last", "tools unused")
BOTH = (*THINKING, *TOOLS, "parallel", "text+call", "tool+think", "think-rounds")
PICTURES = (*PLAIN, "image")
RIGHT: Mapping[str, tuple[str, ...]] = {
    "cohere2": (*PLAIN, "two systems"),
    "deepseekv3": (*PLAIN, "two systems", "tool, none listed", "parallel, none listed"),
    "diffusion_gemma": (*THINKING, *TOOLS, "parallel", "tool+think", "think-rounds", "image", "text, image, text"),
    "gemma3": (*PICTURES, "text, image, text"),
    "glm4moe_training": BOTH,
    "gptoss": (*THINKING, *TOOLS, "tool+think", "think-rounds"),
    "idefics3": (*PICTURES, "text, image, text"),
    "lfm2_2_5": (*BOTH, "image", "text, image, text"),
    "llama3_1": TOOLS,
    "llama3_2": TOOLS,
    "llava_next": PICTURES,
    "nemotron_3_nano": BOTH,
    "nemotron_3_super": BOTH,
    "nemotron_3_ultra": BOTH,
    "qwen2_5": (*TOOLS, "parallel", "text+call"),
    "qwen2_5_vl": (*PICTURES, "text, image, text"),
    "qwen3": BOTH,
    "qwen3_5_nothink": (*BOTH, "image"),
    "qwen3_5_think": (*BOTH, "image"),
    "qwen3_6": (*BOTH, "image"),
    "qwen3_vl": (*TOOLS, "parallel", "text+call", "image", "text, image, text"),
}
"""What published templates must get right, or trainings of today's models stop here."""

SHIPPED_RIGHT: Mapping[str, tuple[str, ...]] = {
    "deepseek-r1": THINKING,
    "glm4": (*TOOLS, "parallel", "text+call"),
    "llama3": TOOLS,
    "mistral": (*TOOLS, "parallel"),
    "qwen": (*TOOLS, "parallel", "text+call"),
    "qwen3": BOTH,
}


@cache
def cells(entry: Entry) -> Mapping[str, Cell]:
    return {name: cell(entry, kind) for name, kind in KINDS.items()}


def faults(entry: Entry, right: tuple[str, ...]) -> list[str]:
    found = [f"{kind}: {each.fault}" for kind, each in cells(entry).items() if each.fault]
    return found + [f"{kind}: refused for {cells(entry)[kind].reason}" for kind in right if cells(entry)[kind].reason]


@pytest.mark.parametrize("name", [f"{name}{variant}" for name in MODELS for variant in ("", "_training")])
def test_published_templates(real_data: Path, name: str) -> None:
    """Audit W4, W5, W6, W7, W10, W13: parts out of order, stops left out or taken for headers, tools and ids that vanish."""
    entries = published(real_data)
    if name in entries:
        assert not faults(entries[name], RIGHT.get(name, ()))
    else:
        assert name.endswith("_training"), f"{name} is gone"


@pytest.mark.parametrize("name", thinned(shipped()))
def test_shipped_templates(name: str) -> None:
    assert not faults(shipped()[name], SHIPPED_RIGHT.get(name, ()))


@pytest.mark.parametrize("name", small())
def test_small_templates(name: str) -> None:
    right = {
        "several stops": (*THINKING, *TOOLS, "tool+think", "think-rounds"),
        "stops of the next role": BOTH,
        "results in the model's turn": (*THINKING, *TOOLS, "parallel", "tool+think", "think-rounds"),
        "no prompt": PLAIN,
        "parts": (*PICTURES, "text, image, text"),
        "forgets reasoning": BOTH,
        "arguments as text": (*PLAIN, "tool, none listed", "rounds, none listed"),
    }
    assert not faults(small()[name], right[name])


def test_parts_out_of_order_are_refused_by_every_template() -> None:
    """Audit W4: "text, call, text" became "AB", then the call; thoughts and texts were sorted apart."""
    for entry in (*shipped().values(), *small().values()):
        assert all(cells(entry)[kind].reason for kind in ("text, call, text", "thought, text, thought, text"))


def test_the_page_of_shipped_templates() -> None:
    _compare("shipped", {name: cells(entry) for name, entry in shipped().items()})
    assert legend() in read(PAGE)


def test_the_page_of_published_templates(real_data: Path) -> None:
    _compare("published", {name: cells(entry) for name, entry in published(real_data).items()})


def _compare(mark: str, rows: Mapping[str, Mapping[str, Cell]]) -> None:
    fresh = with_table(read(PAGE), mark, rows)
    if os.environ.get(WRITE) == "1":
        PAGE.write_text(fresh, "utf-8")
        return
    assert read(PAGE) == fresh, f"docs/templates/matrix.md is out of date. Write it again with\n  {WRITE}=1 pytest {__file__}"
