"""Lines of preference pairs as tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.config.mask import MaskPolicy
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import Refused
from prep_assets.extensions.lines.tokens import answer_policy, reject_lines
from prep_assets.extensions.preference.config import Preference
from prep_assets.extensions.preference.lines import pair_sample, plain_sides
from prep_assets.pipeline.conversations import in_order
from prep_assets.pipeline.rendering import Proven, block_renderer
from prep_assets.pipeline.sources import inline_reasoning
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.derive import MaskOptions
from prep_assets.stores.table import MARGIN, SIDES
from prep_assets.text.encode import Encoded, Encoder
from prep_assets.text.spans import Rendered

# Tokenized preference pairs: both sides rendered and encoded, loss on the answer and its stop token only.

LAST_ANSWER = MaskPolicy(train_turns="last")
"""What the weights of a plain side say, which columns leave out: its last turn is trained, an answer, and nothing else."""


class PairEncoder:
    """Tokenizes pairs: those of plain chats by the forms of their conversations, all others rendered one by one."""

    def __init__(self, workspace: Workspace) -> None:
        family = workspace.family(Preference)
        vocabulary, template, limit = workspace.vocabulary(family), workspace.template(family), family.preprocessing.max_seq_len
        encoder = Encoder(vocabulary, workspace.engines(family), answer_policy(), limit, truncation=family.truncation)
        self._renderer, self._reasoning = Proven(template, encoder), inline_reasoning(workspace, family)
        marks = (*vocabulary.control, *self._reasoning.strings)
        self._plain = block_renderer(template, replace(encoder, policy=LAST_ANSWER), MaskOptions(train_turns="last"), marks)

    def encode(
        self, batch: Sequence[dict[str, Any]], first: int, quarantine: Quarantine, *, name: str = "preferences"
    ) -> tuple[list[int], list[tuple[Mapping[str, Any], Any, int]]]:
        """See `LineEncoder`: a pair is kept if both sides are."""
        refused: dict[int, Refused] = {}
        encoded, encoder = self._encoded(batch, refused), self._renderer.encoder
        for side, fault in encoded.refused:
            refused.setdefault(side // 2, fault)
        if encoder.truncation != "drop":
            _reject_equal_tokens(encoded, refused)
        reject_lines(batch, first, refused, quarantine, name)
        kept = np.array([side // 2 not in refused for side in encoded.kept.tolist()], bool)
        (chosen, *chosen_counts), rejected = (_select_records(encoded, kept & (encoded.kept % 2 == side)) for side in (0, 1))
        pairs = [number for number in range(len(batch)) if number not in refused]
        margins = np.array([batch[number].get(MARGIN, np.nan) for number in pairs], np.float32)
        stored = {} if np.isnan(margins).all() else {MARGIN: margins}
        return pairs, [({**chosen, **stored}, *chosen_counts), rejected]

    def rendered(self, line: Mapping[str, Any], stream: str) -> tuple[Encoder, Rendered]:
        """See `LineEncoder`."""
        sides = {side: self._by_marks(line, side) for side in SIDES}
        _reject_equal_texts(*(rendered.text for rendered in sides.values()))
        return self._renderer.encoder, sides[stream.rpartition("/")[2]]

    def _encoded(self, batch: Sequence[Mapping[str, Any]], refused: dict[int, Refused]) -> Encoded:
        """Both sides of every pair that is not rejected: pair n has the positions 2n and 2n + 1."""
        columns = self._plain.render_block([side for row in batch for side in plain_sides(row, SIDES)])
        texts = {} if columns is None else {side: columns.block.text(at) for at, side in enumerate(columns.rows.tolist())}
        renders: dict[int, Rendered] = {}
        for pair, row in enumerate(batch):
            try:
                for number, side in enumerate(SIDES, 2 * pair):
                    if number not in texts:
                        renders[number] = self._rendered(row, side)
                        texts[number] = renders[number].text
                _reject_equal_texts(texts[2 * pair], texts[2 * pair + 1])
            except Refused as refusal:
                refused[pair] = refusal
        renders = {side: rendered for side, rendered in renders.items() if side // 2 not in refused}
        encoder = self._renderer.encoder
        parts = [] if columns is None else [(columns.rows, encoder.encode_block(columns.block))]
        parts.append((np.array(list(renders), np.int64), encoder.encode(list(renders.values()))))
        return in_order(parts, np.array([2 * pair + side for pair in refused for side in (0, 1)], np.int64))

    def _by_marks(self, row: Mapping[str, Any], side: str) -> Rendered:
        return self._renderer.render(self._reasoning.read(pair_sample(row, side)))

    def _rendered(self, row: Mapping[str, Any], side: str) -> Rendered:
        """A side by its marks, or else by its form, as `BlockRenderer.render` has it; its regions say what is trained."""
        try:
            return self._by_marks(row, side)
        except Refused:
            [plain] = plain_sides(row, [side])
            if plain is None or (rendered := self._plain.by_form(plain)) is None:
                raise
        turns = pair_sample(row, side).turns
        return replace(rendered, spans=tuple(replace(span, region=turns[span.turn].regions[0]) for span in rendered.spans))


def _reject_equal_texts(chosen: str, rejected: str) -> None:
    """Reject pairs whose answers render to one text, e.g. because the template trims: they teach nothing."""
    if chosen == rejected:
        raise Refused("equal_answers", "the chat template renders both answers to the same text", stage="render")


def _reject_equal_tokens(encoded: Encoded, refused: dict[int, Refused]) -> None:
    """Reject pairs whose answers are equal after truncation: they teach nothing."""
    borders = encoded.offsets.tolist()
    sides = {side: encoded.ids[start:end] for side, start, end in zip(encoded.kept.tolist(), borders[:-1], borders[1:], strict=True)}
    for pair in sorted({side // 2 for side in sides}):
        chosen, rejected = sides.get(2 * pair), sides.get(2 * pair + 1)
        if chosen is not None and rejected is not None and np.array_equal(chosen, rejected):
            detail = f"both sides have the same {len(chosen):,} tokens where truncation cuts them off"
            refused.setdefault(pair, Refused("equal_after_truncation", detail, stage="tokenize"))


def _select_records(encoded: Encoded, keep: npt.NDArray[np.bool_]) -> tuple[Mapping[str, Any], Any, int]:
    lengths = np.diff(encoded.offsets)
    tokens = np.repeat(keep, lengths)
    arrays = {"tokens": encoded.ids[tokens], "loss_mask": (encoded.loss[tokens] != 0).astype(np.uint8)}
    return arrays, lengths[keep], int(encoded.taken[keep].sum())
