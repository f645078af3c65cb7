"""Spoiled verdicts of quality steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from prep_assets.pipeline.verdicts import VERDICTS
from prep_assets.stores.version_folders import Published
from prep_assets_tests.proofs.corruption import Mutation, Spoil


def changed(change: Callable[[Any], Any]) -> Spoil:
    """Write the table again as `change` makes it."""

    def spoil(published: Published) -> None:
        path = published.directory / VERDICTS
        pq.write_table(change(pq.read_table(path)), path)

    return spoil


def a_row_dropped(table: Any) -> Any:
    """Says of the first row that a step drops it."""
    return table.set_column(2, "dropped", pa.array(["near_duplicate", *table["dropped"].to_pylist()[1:]], pa.string()))


SPOILED = [
    Mutation(name, asset, "verdicts_again", changed(change), partition)
    for asset, partition in (
        ("pretrain_quality", "notes"),
        ("sft_quality", "alpaca"),
        ("preference_quality", "hh"),
        ("rl_quality", "gsm8k"),
    )
    for name, change in (("a row dropped", a_row_dropped), ("a row left out", lambda table: table.slice(1)))
]
