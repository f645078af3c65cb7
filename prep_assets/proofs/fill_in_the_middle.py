"""A document that was cut for fill-in-the-middle, put together again. It shares no code with what cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def parts_in_order(ids: Sequence[int], sentinels: Mapping[str, int]) -> list[list[int]] | None:
    """The parts of a document in the order of its text, without sentinels; `None` where it was not cut.

    What follows ``middle`` comes before what follows ``suffix``; in the other order (tail first) nothing stands between ``prefix`` and
    ``suffix``, so one rule reads both.

    Raises:
        ValueError: the sentinels are not one each, in the order prefix, suffix, middle, the first at the very start.
    """
    ids = list(ids)
    found = [(at, token) for at, token in enumerate(ids) if token in sentinels.values()]
    if not found:
        return None
    expected = [sentinels["prefix"], sentinels["suffix"], sentinels["middle"]]
    if [token for _, token in found] != expected or found[0][0] != 0:
        raise ValueError(f"sentinels {found[:6]} (place, id), needs {expected} in this order from place 0")
    suffix, middle = found[1][0], found[2][0]
    return [ids[1:suffix], ids[middle + 1 :], ids[suffix + 1 : middle]]
