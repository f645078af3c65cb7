"""The check `lossless_trace`: the ids of trajectories in ATIF say what their messages say, and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

from prep_assets.checks.registry import check
from prep_assets.checks.sources_again import domain_source, stored_rows
from prep_assets.extensions.atif.proofs.rules import messages_of_trajectories
from prep_assets.extensions.rl.checks import groups_of, shown_turns
from prep_assets.extensions.rl.proofs.whole import Trace, check_whole
from prep_assets.pipeline.asset import Store
from prep_assets.proofs.mutations import Change, Mutation, mutate_alone, mutate_field
from prep_assets.proofs.verdict import Verdict


def traces(store: Store) -> Iterator[Trace]:
    """The traces of a store of groups whose rows are trajectories; none of any other."""
    domain = domain_source(store).domain
    if domain.schema_name != "atif_group":
        return
    for stream in store.streams().values():
        groups = groups_of(store, stream)
        for group in chain.from_iterable(map(groups, stored_rows(store, stream))):
            rows = shown_turns(store, group.conversations(), group.source)
            yield Trace(group.id, rows, messages_of_trajectories(group.payload, domain.options))


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
