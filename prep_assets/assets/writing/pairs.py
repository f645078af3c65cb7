"""Tokenized preference pairs: both sides rendered and encoded, loss on the answer and its stop token only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from prep_assets.assets.reading.reasoning import inline_reasoning
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.preference_rows import pair_sample
from prep_assets.assets.writing.proven import Proven
from prep_assets.config.models import Preference
from prep_assets.errors import Refused
from prep_assets.records.quarantine import Quarantine
from prep_assets.templates.reasoning import InlineReasoning
from prep_assets.templates.rendering import Rendered
from prep_assets.tokenization.encode import Encoded, Encoder
from prep_assets.tokenization.policy import MaskPolicy

SIDES = ("chosen", "rejected")


def pair_renderer(workspace: Workspace) -> Proven:
    """What renders and tokenizes the sides of pairs."""
    family = workspace.family(Preference)
    limit = family.preprocessing.max_seq_len
    encoder = Encoder(workspace.vocabulary(family), workspace.engines(family), answer_policy(), limit, truncation=family.truncation)
    return Proven.of(workspace.template(family), encoder)


def answer_policy() -> MaskPolicy:
    """Loss on a region that says so itself, on nothing else: the answers carry weight 1, the prompt weight 0."""
    return MaskPolicy({}, "mask")


def encode_pairs(
    workspace: Workspace, batch: list[dict[str, Any]], first: int, renderer: Proven, quarantine: Quarantine, *, name: str = "preferences"
) -> tuple[list[int], dict[str, tuple[Any, Any, Any, int]]]:
    """Pairs of which both sides are kept; ids, masks and lengths of each side, and how many tokens truncation took from it.

    Args:
        name: of their file, for quarantine.
    """
    reasoning, encoder = inline_reasoning(workspace, workspace.family(Preference)), renderer.encoder
    refused: dict[int, Refused] = {}
    rendered: dict[int, tuple[Rendered, ...]] = {}
    for i, row in enumerate(batch):
        try:
            rendered[i] = rendered_pair(row, renderer, reasoning)
        except Refused as refusal:
            refused[i] = refusal
    encoded: dict[str, tuple[list[int], Encoded]] = {}
    for number, side in enumerate(SIDES):
        at = list(rendered)
        result = encoder.encode([rendered[i][number] for i in at])
        for position, why in result.refused:
            refused.setdefault(at[position], why)
        encoded[side] = ([at[int(position)] for position in result.kept], result)
    if encoder.truncation != "drop":
        _refuse_equal(encoded, refused)
    for i, why in sorted(refused.items()):
        quarantine.add(f"{name}.jsonl:{first + i}", why.stage, why.reason, why.detail, batch[i])
    kept = [i for i in range(len(batch)) if i not in refused]
    return kept, {side: _chosen(*encoded[side], refused) for side in SIDES}


def rendered_pair(row: dict[str, Any], renderer: Proven, reasoning: InlineReasoning) -> tuple[Rendered, ...]:
    """Both sides. A template that trims can make one text of two answers, and such a pair teaches nothing."""
    sides = tuple(renderer.render(reasoning.read(pair_sample(row, side))) for side in SIDES)
    if sides[0].text == sides[1].text:
        raise Refused("equal_answers", "the chat template renders both answers to the same text", stage="render")
    return sides


def _refuse_equal(encoded: Mapping[str, tuple[list[int], Encoded]], refused: dict[int, Refused]) -> None:
    """Two answers that differ only after the place where they are cut off teach nothing."""
    sides = []
    for at, result in encoded.values():
        borders = result.offsets.tolist()
        sides.append({i: result.ids[start:end] for i, start, end in zip(at, borders[:-1], borders[1:], strict=True)})
    chosen, rejected = sides
    for i in chosen.keys() & rejected.keys():
        if np.array_equal(chosen[i], rejected[i]):
            detail = f"both sides have the same {len(chosen[i]):,} tokens where truncation cuts them off"
            refused.setdefault(i, Refused("equal_after_truncation", detail, stage="tokenize"))


def _chosen(at: list[int], encoded: Encoded, refused: dict[int, Refused]) -> tuple[Any, Any, Any, int]:
    keep = np.array([i not in refused for i in at], bool)
    lengths = np.diff(encoded.offsets)
    tokens = np.repeat(keep, lengths)
    return encoded.ids[tokens], (encoded.loss[tokens] != 0).astype(np.uint8), lengths[keep], int(encoded.taken[keep].sum())
