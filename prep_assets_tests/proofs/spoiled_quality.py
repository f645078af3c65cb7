"""Spoiled verdicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from prep_assets.pipeline.leaks import PASSAGES, TEXTS
from prep_assets.pipeline.verdicts import VERDICTS
from prep_assets.stores.version_folders import Published
from prep_assets_tests.proofs.corruption import Mutation, Spoil


def changed(change: Callable[[Any], Any], file: str = VERDICTS) -> Spoil:
    """Write the table again as `change` makes it."""

    def spoil(published: Published) -> None:
        path = published.directory / file
        pq.write_table(change(pq.read_table(path)), path)

    return spoil


def a_row_dropped(table: Any) -> Any:
    """Says of the first row that a step drops it."""
    return table.set_column(2, "dropped", pa.array(["near_duplicate", *table["dropped"].to_pylist()[1:]], pa.string()))


def a_leak_made_up(table: Any) -> Any:
    """Says that the first row holds a text that is held out nowhere."""
    made_up = {"file": 0, "row": 0, "detail": "shares 9 of 9 words", "rule": "gpt3", "family": "eval", "domain": "none", "record": "x:0"}
    return pa.concat_tables([table, pa.Table.from_pylist([{**made_up, "shared": 9, "units": 9, "texts": 1}], schema=table.schema)])


SPOILED = [
    Mutation(name, asset, "verdicts_again", changed(change), partition)
    for asset, partition in (
        ("pretrain_quality", "notes"),
        ("sft_quality", "alpaca"),
        ("preference_quality", "hh"),
        ("rl_quality", "gsm8k"),
    )
    for name, change in (("a row dropped", a_row_dropped), ("a row left out", lambda table: table.slice(1)))
] + [
    Mutation("a leak left out", "sft_leaks", "leaks_again", changed(lambda table: table.slice(1)), "gsm8k"),
    *(
        Mutation("a leak made up", asset, "leaks_again", changed(a_leak_made_up), partition)
        for asset, partition in (("pretrain_leaks", "notes"), ("preference_leaks", "hh"), ("rl_leaks", "gsm8k"))
    ),
    *(
        Mutation(f"the first row of {file} left out", "eval_passages", "passages_again", changed(lambda table: table.slice(1), file))
        for file in (TEXTS, PASSAGES.format("gpt3"))
    ),
]
