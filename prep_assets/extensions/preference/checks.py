"""Checks of both sides of pairs against their lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from prep_assets.checks import of_conversations
from prep_assets.checks.rejections import Oracle, Ruling, given_rows
from prep_assets.checks.relations import first_compared, is_small, relation
from prep_assets.checks.sources_again import StoredRows, streams_of
from prep_assets.extensions.lines.checks import require_current
from prep_assets.extensions.lines.write import weighted
from prep_assets.extensions.preference.config import Preference
from prep_assets.extensions.preference.lines import pair_sample
from prep_assets.extensions.preference.proofs.pairs import Margin, check_margins
from prep_assets.pipeline.asset import Conversations, Store
from prep_assets.proofs.chat_blocks import answers_derivation
from prep_assets.proofs.mask import Truncation
from prep_assets.proofs.plain_reading import PLAIN_PAIR, plain_turns
from prep_assets.proofs.row_rules import rewards_of
from prep_assets.proofs.second_reading import read_again, shown_by
from prep_assets.proofs.verdict import Tally
from prep_assets.samples import ASSISTANT, USER, PlainChat, Row, Sample
from prep_assets.stores.table import MARGIN, SIDES, Table


class Sides(of_conversations.Conversations):
    """What the sides of preference pairs must have become, derived from their lines."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._template = store.workspace.template(store.workspace.family(Preference))
        self.derivation = answers_derivation(self._template, alone=is_small(store))
        self.truncation = Truncation(store.recipe["truncation"], store.recipe["max_seq_len"])
        require_current(store, "pairs")

    def read(self, side: str, payloads: Sequence[Mapping[str, Any]], identity: Callable[[int], str]) -> Sequence[of_conversations.Source]:
        """A prompt and one answer to it."""
        return [_plain_side(payload, side) or self._again(pair_sample(payload, side)) for payload in payloads]

    def sample(self, chat: PlainChat) -> Sample:
        """Only the answer, the last turn, is trained."""
        *prompt, answer = chat.sample().turns
        return self._again(Sample((*(weighted(turn, 0.0) for turn in prompt), weighted(answer, 1.0))))

    def _again(self, sample: Sample) -> Sample:
        return read_again(sample, self.store.recipe, **shown_by(self._template))

    def identity(self, stored: StoredRows, at: int) -> str:
        """Records are named by their lines."""
        return f"line {stored.rows[at] + 1}"


def _plain_side(row: Mapping[str, Any], side: str) -> PlainChat | None:
    """A prompt with an answer of one turn of an assistant, by a second reading; `None` for any other row."""
    prompt = plain_turns(row["prompt"], role=USER) if row.keys() <= PLAIN_PAIR else None
    answer = plain_turns(row[side], role=ASSISTANT) if prompt else None
    if prompt is None or answer is None or answer[0] != (ASSISTANT,):
        return None
    return PlainChat(prompt[0] + answer[0], prompt[1] + answer[1])


def margins(store: Store, stream: Table) -> Callable[[StoredRows], Iterator[Margin]] | None:
    """Return what gives the margin of each pair, and that of its line; `None` for the rejected sides."""

    def pairs(rows: StoredRows) -> Iterator[Margin]:
        for number, identity, line in rows.records():
            stored = float(stream.columns[MARGIN].values[number]) if MARGIN in stream.columns else np.nan
            yield Margin(f"line {identity.rpartition(':')[2]}", None if np.isnan(stored) else stored, line.get("margin"))

    return pairs if stream.name.endswith("chosen") else None


def equal_rewards(store: Store) -> Oracle:
    """Whether the responses of a row have one reward, so that none is better."""
    opened = given_rows(store)

    def judge(reason: str, row: Row) -> Ruling:
        found = opened and opened[0].of(opened[1](row))
        if not isinstance(found, tuple):
            return None
        accepting, read = found
        try:
            rewards = {float(each) for each in rewards_of(read, accepting)}
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        return f"it has {len(rewards)} different rewards" if len(rewards) > 1 else ""

    return judge


def first_margins(store: Store) -> Iterator[Iterator[Margin]]:
    """Yield the first margins of each stream, where the store has any."""
    return first_compared(store, "margins") if any(MARGIN in each.columns for each in streams_of(store)) else iter(())


MARGINS = relation("margins", "The margin of every pair is that of its line, as float32.", (margins, lambda store: Tally(check_margins)))


# Rejected lines.


def rendered_pairs(store: Store) -> Conversations:
    """Return what a template renders of a line of a pair."""
    return lambda row: [(pair_sample(row, side), False) for side in SIDES]
