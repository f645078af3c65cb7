"""Duplicates over all inputs, whichever domain they are in: as the core finds them, or as AstrAI did."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from prep_assets.assets.reading.examples import Deduplicator

Dedup = Literal["exact", "prefix200", "none"]


def prefix_signature(payload: Mapping[str, Any]) -> str:
    """AstrAI's signature: MD5 of the first 200 code points of the record as JSON with sorted keys.

    It takes different records for equal where they begin alike, such as chats with one long system prompt, and equal texts for different
    where an id stands before them.
    """
    return hashlib.md5(json.dumps(payload, sort_keys=True, ensure_ascii=False)[:200].encode(), usedforsecurity=False).hexdigest()


def deduplicator(method: Dedup) -> Deduplicator | None:
    """What refuses duplicates; `None` keeps them."""
    if method == "prefix200":
        return Deduplicator(lambda record: bytes.fromhex(prefix_signature(record.payload)), "has the same first 200 characters as")
    return Deduplicator() if method == "exact" else None
