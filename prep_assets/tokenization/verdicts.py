"""What was found about a tokenizer's engines, kept on disk: the next process reads it instead of comparing them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from prep_assets.disk import kept
from prep_assets.disk.kept import Kept
from prep_assets.tokenization.suspects import Ranges

KEPT = Kept("engines", 256)
_RULES = 2
"""Counted up when the comparison itself changes."""
_DECIDES = ("added_tokens", "normalizer", "pre_tokenizer", "model")


class Finding(msgspec.Struct, frozen=True):
    """Whether the fast engine may be used for a tokenizer, why, and at which code points (first, one past the last) it differs."""

    fast: bool
    verdict: str
    suspects: Ranges = ()


def key_of(spec: Mapping[str, Any], engine: str) -> str:
    """What a finding depends on: the tokenizer and the engine beside what all such keys have."""
    return kept.key_of(engine, _RULES, [spec.get(part) for part in _DECIDES])


def find(key: str) -> Finding | None:
    """The finding that was kept, or `None`."""
    data = KEPT.find(key)
    return None if data is None else msgspec.json.decode(data, type=Finding)


def keep(key: str, finding: Finding) -> None:
    """Keep a finding."""
    KEPT.keep(key, msgspec.json.encode(finding))
