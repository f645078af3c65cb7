"""GPT-2's printable stand-in for each byte: itself where printable, else the next code point from 256 on."""

from __future__ import annotations


def _alphabet() -> tuple[str, ...]:
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    stand_ins = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(stand_ins)) for byte in range(256))


ALPHABET = _alphabet()
