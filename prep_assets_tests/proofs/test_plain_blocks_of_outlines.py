"""Chats with tools, calls and reasoning that are proven by the block: the same verdicts as one by one, and nothing that is wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

from prep_assets.proofs import chat_blocks as module
from prep_assets.proofs.derive import derive
from prep_assets.proofs.mask import Conversation, Left, prove_masks
from prep_assets.samples import ASSISTANT, THINKING, TOOL_CALL, USER, Region, Sample, Turn, changed, turn
from prep_assets.text import forms
from prep_assets_tests.corpus.chats import ACTS, CALLED, CALLS, TOOLS
from prep_assets_tests.masks.bound import SHIPPED, bind
from prep_assets_tests.proofs.blocks import Built, all_proven_are_proven_alone


@pytest.fixture(autouse=True)
def learned_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forms are learned of the first sample, and none is left to the proofs of single rows because its hash says so or it is the first."""
    monkeypatch.setattr(module, "ONE_IN", 1 << 40)
    monkeypatch.setattr(module.Firsts, "__call__", lambda *_: False)
    monkeypatch.setattr(forms, "LEARN_AFTER", 1)


@pytest.mark.parametrize("name", ["llama3", "qwen", "qwen3"])
def test_sound_rows_are_proven_and_counted(name: str) -> None:
    samples = [CALLED, changed(CALLED, turns=(turn(USER, "Write."), *CALLED.turns[1:])), changed(CALLED, tools=({"name": "é"},))]
    built = Built(bind(SHIPPED, name), samples)
    built.looked_for.append("\t\t")  # of which nothing is left where texts have no white space at their ends
    assert len(built.samples) == 3
    assert built.proven() == [True] * 3
    derived = [derive(sample, built.options, built.bound.template) for sample in samples]
    rows = [Conversation("", *stored, Left(each, each.expected)) for stored, each in zip(built.stored, derived, strict=True)]
    assert built.masks.verdict() == prove_masks(rows, built.bound.vocabulary)


def told_otherwise(sample: Sample, at: int, region: int, text: str | None) -> Sample:
    """The sample with another text in a region, or without that region."""
    own = sample.turns[at]
    changes = () if text is None else (changed(own.regions[region], text=text),)
    other = changed(own, regions=(*own.regions[:region], *changes, *own.regions[region + 1 :]))
    return changed(sample, turns=(*sample.turns[:at], other, *sample.turns[at + 1 :]))


OTHER = json.dumps({"name": "get", "arguments": {"path": "/tmp/e", "lines": [1, 2.5]}})


@pytest.mark.parametrize(
    "said",
    [
        told_otherwise(ACTS, 1, 2, OTHER),
        told_otherwise(ACTS, 1, 3, OTHER.replace("get", "put")),
        told_otherwise(ACTS, 1, 3, None),
        told_otherwise(ACTS, 1, 0, None),
        told_otherwise(ACTS, 1, 0, "Hmm.\n"),
        told_otherwise(ACTS, 2, 0, '{"é": "no"}'),
        changed(ACTS, tools=({"type": "function", "function": {"name": "get", "parameters": {"a": [], "b": {}}}},)),
        changed(ACTS, tools=()),
        changed(ACTS, tools=TOOLS * 2),
        changed(ACTS, turns=(ACTS.turns[0], ACTS.turns[1], ACTS.turns[2], *ACTS.turns[4:])),
        changed(ACTS, turns=ACTS.turns[:-1]),
    ],
)
def test_a_row_that_another_chat_became_is_not_proven(said: Sample) -> None:
    """Another argument, name, result or tool; a call, reasoning or a turn that is lost."""
    built = Built(bind(SHIPPED, "qwen3"), [ACTS] * 3)
    assert built.proven([ACTS, said, ACTS]) == [True, False, True]


@pytest.mark.parametrize("name", ["qwen", "qwen3"])
def test_a_mask_that_is_shifted_or_changed_is_not_proven(name: str) -> None:
    built = Built(bind(SHIPPED, name), [ACTS if name == "qwen3" else CALLED] * 3)
    assert built.proven() == [True] * 3
    ids, mask = built.stored[1]
    trained = np.flatnonzero(mask)
    for wrong in (np.roll(mask, 1), np.roll(mask, -1), mask * 0.5, mask * 0, np.where(np.arange(len(mask)) == trained[3], 0, mask)):
        built.stored[1] = ids, wrong
        assert built.proven() == [True, False, True]
    built.stored[1] = np.where(np.arange(len(ids)) == trained[3], ids[0], ids), mask
    assert built.proven() == [True, False, True]


@pytest.mark.parametrize("name", ["qwen", "qwen3"])
def test_whatever_is_proven_by_the_block_is_proven_alone(name: str) -> None:
    all_proven_are_proven_alone(bind(SHIPPED, name))


@pytest.mark.parametrize("string", ['"a" or', "b\\c", " é\t? "])
def test_a_string_that_texts_are_searched_for_is_found_in_json(string: str) -> None:
    """As JSON writes it, without white space at its ends, and not less of it."""
    bare = string.strip()
    told = [json.dumps({"name": "get", "arguments": {"path": f"is{text}so"}}) for text in ("", bare, bare[1:], bare[:-1])]
    built = Built(bind(SHIPPED, "qwen3"), [told_otherwise(CALLED, 1, 0, each) for each in told])
    built.looked_for = [string]
    assert built.proven() == [True, False, True, True]


def thinks(text: str, weight: float | None = None) -> Sample:
    regions = (Region(THINKING, "Hm.", weight), Region("text", text, weight), Region(TOOL_CALL, CALLS, weight))
    return Sample((turn(USER, "Read."), Turn(ASSISTANT, regions)), TOOLS)


def test_weights_of_a_sample_count() -> None:
    built = Built(bind(SHIPPED, "qwen3"), [thinks("So.", weight) for weight in (None, 0.5)])
    assert built.proven() == [True] * 2
    assert built.proven([thinks("So.")] * 2) == [True, False]
