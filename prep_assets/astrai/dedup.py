"""Duplicates: records that equal an earlier one, whichever file or domain it stands in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.pipelines.examples import content_digest
from prep_assets.samples import Record

Dedup = Literal["exact", "prefix200", "none"]


def prefix_signature(payload: Mapping[str, Any]) -> str:
    """AstrAI's signature: MD5 of the first 200 code points of the record as JSON with sorted keys.

    It takes different records for equal where they begin alike, such as chats with one long system prompt, and equal texts for different
    where an id stands before them.
    """
    return hashlib.md5(json.dumps(payload, sort_keys=True, ensure_ascii=False)[:200].encode(), usedforsecurity=False).hexdigest()


class Duplicates:
    """Finds records seen before. It keeps a hash and the id of each record."""

    def __init__(self, method: Dedup) -> None:
        self._method = method
        self._seen: dict[bytes | str, str] = {}

    def check(self, record: Record, identity: str) -> None:
        """Refuse a duplicate, naming the record that came first."""
        if self._method == "none":
            return
        exact = self._method == "exact"
        first = self._seen.setdefault(content_digest(record) if exact else prefix_signature(record.payload), identity)
        if first != identity:
            what = "equals" if exact else "has the same first 200 characters as"
            raise Refused("duplicate", f"{what} {first}", stage="deduplicate")
