"""A check of `sft_tokens` with the corruption that it must catch."""

from collections.abc import Iterable, Iterator

import numpy as np

from prep_assets.checks.registry import check
from prep_assets.pipeline.asset import Store
from prep_assets.proofs.mutations import Mutation
from prep_assets.proofs.verdict import Verdict


def masks(store: Store) -> Iterator[np.ndarray]:
    """The loss mask of each record."""
    for stream in store.streams().values():
        yield from (stream.record(number, "loss_mask") for number in range(len(stream)))


UNTRAINED = Mutation("nothing is trained", "trains_something", lambda rows, at: [*rows[:at], rows[at] * 0, *rows[at + 1 :]])


@check("sft_tokens", rows=masks, mutations=[UNTRAINED])
def trains_something(rows: Iterable[np.ndarray]) -> Verdict:
    """Each record trains a token."""
    trained = [int(np.count_nonzero(mask)) for mask in rows]
    return Verdict(all(trained), f"{sum(map(bool, trained)):,} of {len(trained):,} records train a token", {"trained": sum(trained)})
