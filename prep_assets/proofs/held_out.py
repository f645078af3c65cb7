"""What a row is known by, worked out a second time: whether it equals another one, and on which side of a split it belongs."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from hashlib import sha256
from typing import Any

import orjson

_SORTED = json.JSONEncoder(sort_keys=True, default=lambda value: {type(value).__name__: str(value)})
_PLAIN = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_NEVER_NULL = {str, int, bool}
"""Types of values of which orjson writes none as null."""
_EXPONENT = re.compile(r"\de[+-]?\d")


def fingerprint(payload: Any) -> bytes:
    """16 bytes that are equal exactly where every field is."""
    return digest(sorted_json(payload))


def digest(data: bytes) -> bytes:
    """16 bytes of sha256."""
    return sha256(data).digest()[:16]


def sorted_json(payload: Any) -> bytes:
    """JSON with sorted keys, by orjson. It writes null for what is not a number as well, and does not know every type: the standard library writes
    such rows."""
    alone = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
    try:
        written = orjson.dumps(payload, option=orjson.OPT_SORT_KEYS | alone)
    except TypeError:
        return _SORTED.encode(payload).encode()
    if type(payload) is dict and {*map(type, payload.values())} <= _NEVER_NULL:
        return written
    return _SORTED.encode(payload).encode() if b"null" in written else written


def canonical_json(value: Any) -> bytes:
    """JSON without spaces, keys sorted, text as UTF-8: what the held-out share is decided by.

    The standard library writes it; msgspec does where the two spell a number differently (``1e16``), and values that JSON does not have.
    """
    with suppress(TypeError, ValueError):
        text = _PLAIN.encode(value)
        if not _EXPONENT.search(text):
            return text.encode()
    import msgspec

    return msgspec.json.encode(value, order="sorted")


def is_held_out(content: bytes, fraction: float) -> bool:
    """Whether the upper half of the content's xxh3-128, as a share of all its values, lies below `fraction`."""
    import xxhash

    numerator, denominator = fraction.as_integer_ratio()  # in whole numbers, as the share is not one that a float always has
    return (xxhash.xxh3_128_intdigest(content) >> 64) * denominator < numerator << 64
