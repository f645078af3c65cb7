"""Rows with a tombstone: they are taken out before anything else looks at them, and their content goes nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from prep_assets.config.tombstones import payload_digest
from prep_assets.records.blocks import Block, Unreadable
from prep_assets.records.where import FORGOTTEN
from prep_assets.samples import Record


def without_forgotten(blocks: Iterator[Block], digests: frozenset[str]) -> Iterator[Block]:
    """`blocks` with the forgotten records moved to the refused rows, which stay in file order. Their content is not shown."""
    for block in blocks:
        kept: list[Record] = []
        refused = list(block.unreadable)
        for record in block.records:
            if payload_digest(record.payload) in digests:
                refused.append(Unreadable(record.file, record.row, FORGOTTEN, "it has a tombstone in forgotten.jsonl", ""))
            else:
                kept.append(record)
        yield Block(kept, sorted(refused, key=lambda each: each.row), block.bytes_read)
