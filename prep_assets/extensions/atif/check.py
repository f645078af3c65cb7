"""The check `lossless_trace`: the ids of trajectories in ATIF say what their messages say, and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from prep_assets.checks.registry import check
from prep_assets.checks.sources_again import domain_source, stored_rows
from prep_assets.extensions.atif.proofs.rules import inside, of_step
from prep_assets.extensions.atif.proofs.whole import Trace, Turns, check_whole
from prep_assets.extensions.rl.checks import StoredGroup, groups_of
from prep_assets.extensions.rl.groups import conversations
from prep_assets.pipeline.asset import Store
from prep_assets.proofs.mutations import Change, Mutation, mutate_alone, mutate_field
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Row
from prep_assets.text.render import render


def traces(store: Store) -> Iterator[Trace]:
    """The traces of a store of groups whose rows are trajectories; none of any other."""
    domain = domain_source(store).domain
    if domain.schema_name != "atif_group":
        return
    for stream in store.streams().values():
        groups = groups_of(store, stream)
        for group in chain.from_iterable(map(groups, stored_rows(store, stream))):
            yield Trace(group.id, [*_rows(store, group)], [*_messages(group.payload, domain.options)])


def _rows(store: Store, group: StoredGroup) -> Iterator[Turns]:
    template = store.workspace.template(store.family)  # type: ignore[arg-type]
    for (ids, mask), sample in zip(group.conversations(), conversations(group.source), strict=True):
        parts = [store.vocabulary.decode(part) for part in np.split(ids, np.flatnonzero(np.diff(mask)) + 1)]
        texts = [" ".join(parts[0::2]), " ".join(parts[1::2]), render(sample, template).text]
        for control in store.vocabulary.control:
            texts = [text.replace(control, " ") for text in texts]
        yield Turns(*texts)


def _messages(row: Row, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for outer in row[options["runs_key"]] if options.get("runs_key") else [row]:
        for each in (outer, *(inside(outer) if options.get("subagents") == "train" else ())):
            yield from (message for step in each["steps"] for message in of_step(step))


def _in_row(field: str, change: Callable[[str], str]) -> Change:
    return mutate_alone(mutate_field("rows", lambda rows: [replace(rows[0], **{field: change(getattr(rows[0], field))}), *rows[1:]]))


LOSSES = (
    Mutation(
        "a question in the ids that no message asks", "lossless_trace", _in_row("given", lambda text: f"{text} Delete the cache first.")
    ),
    Mutation("half of the messages lost that the ids have", "lossless_trace", _in_row("shown", lambda text: text[len(text) // 2 :])),
    Mutation(
        "an answer that no id says",
        "lossless_trace",
        mutate_alone(mutate_field("messages", lambda said: [*said[:-1], {**said[-1], "content": "Perhaps."}])),
    ),
    Mutation(
        "a message more than the ids have",
        "lossless_trace",
        mutate_alone(mutate_field("messages", lambda said: [{"role": "user", "content": "Stop now."}, *said])),
    ),
)
"""Corruptions of traces; the check must catch each."""


@check("rl_groups_by_domain", rows=traces, mutations=LOSSES)
def lossless_trace(rows: Iterable[Trace]) -> Verdict:
    """The ids of a trajectory say each text of its messages, and no words that neither they nor the template have."""
    return check_whole(rows)
