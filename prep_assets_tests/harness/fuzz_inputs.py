"""Inputs that are nearly right: sound bytes with a few changed, cut, doubled or swapped; and JSON with a few values or keys changed."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

WORDS = (
    *(b"null", b"-1", b"1e999", b"[]", b"{}", b'""', b"\xff\xfe", b"99999999999999999999", b"true", b'"\\ud800"', b"NaN", b"\0"),
    *(b"[" * 600, b"[" * 30_000, b'{"a":' * 30_000, b"1" * 5000),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 1e308, float("nan"), float("inf"), 2**31, 2**63, 2**64, -(2**63) - 1, 10**400),
    *(
        "",
        " ",
        "a",
        "\0",
        "\ud800",
        "\u202e",
        "\u2028",
        "<think>",
        "</s>",
        "{{",
        "{%",
        "\x1b[31m",
        "a" * 300,
        "-1",
        "1",
        "user",
        "assistant",
    ),
    *([], {}, [[]], [{}], {"": ""}, {"a": None}, [None], [1, "a", None], ["a"] * 50, "x" * 20_000),
)
_DEEPEST = 80


def changed_bytes(data: bytes, chance: random.Random) -> bytes:
    """`data` with one to four changes."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, size = chance.randrange(len(changed) + 1), chance.choice((1, 1, 2, 4, 8, 64))
        match chance.randrange(6):
            case 0:
                changed[at : at + size] = chance.randbytes(size)
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = changed[at : at + size] * chance.choice((1, 2, 50))
            case 3:
                del changed[at:]
            case 4:
                changed[at : at + size] = chance.choice(WORDS)
            case 5 if at < len(changed):
                changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed)


def changed_json(data: bytes, chance: random.Random) -> bytes:
    """JSON, or lines of it, of another content; `data` with some bytes changed where it is none."""
    first, line, rest = data.partition(b"\n") if data.count(b"\n") > 1 and not data.startswith((b"{\n", b"[\n")) else (data, b"", b"")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return changed_bytes(data, chance)
    holder = [value]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        _change(holder, chance)
    return json.dumps(holder[0], ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass") + line + rest


def _change(holder: list[Any], chance: random.Random) -> None:
    """Change one value somewhere in it."""
    at: Any = holder
    for _ in range(_DEEPEST):
        keys = range(len(at)) if isinstance(at, list) else list(at)
        key = chance.choice(keys)
        inner = at[key]
        if not isinstance(inner, list | dict) or not inner or chance.random() < 0.25:
            break
        at = inner
    match chance.randrange(6):
        case 0 | 1:
            at[key] = copy.deepcopy(chance.choice(VALUES))
        case 2 if isinstance(at, dict):
            at[chance.choice((*at, "", "a", "role", "content"))] = at.pop(key)
        case 2 | 3 if at is not holder:
            del at[key]
        case 4 if isinstance(at, list):
            at += [at[key]] * chance.choice((1, 2, 20))
        case 5:
            at[key] = chance.choice(([inner], {"a": inner}, str(inner)[:1000], _other(holder, chance)))
        case _:
            at[key] = copy.deepcopy(chance.choice(VALUES))


def _other(holder: list[Any], chance: random.Random) -> Any:
    """A copy of a value that stands elsewhere."""
    at: Any = holder
    while isinstance(at, list | dict) and at and chance.random() < 0.8:
        at = chance.choice(at if isinstance(at, list) else list(at.values()))
    return json.loads(json.dumps(at))
