"""Names and order of a domain's files: the same on every machine, wherever the files lie."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath

from prep_assets.errors import SourceError
from prep_assets.records.find import Found
from prep_assets.records.remote import file_name


def stable_names(places: Iterable[str]) -> dict[str, str]:
    """Place -> path from the common parent folder of all places.

    Places of several kinds (local, `s3`, `hub` ...) have no common parent, so that each kind becomes a folder of its own.

    Raises:
        SourceError: two places have one name, e.g. web addresses that differ in their query only.
    """
    by_kind: dict[str, dict[str, PurePosixPath]] = {}
    for place in places:
        kind, separator, path = file_name(place).partition("://")
        by_kind.setdefault(kind if separator else "file", {})[place] = PurePosixPath(path if separator else place)
    names: dict[str, str] = {}
    for kind, paths in by_kind.items():
        parent = os.path.commonpath([path.parent for path in paths.values()])
        prefix = f"{kind}/" if len(by_kind) > 1 else ""
        names |= {place: f"{prefix}{path.relative_to(parent)}" for place, path in paths.items()}
    twice = [name for name, count in Counter(names.values()).items() if count > 1]
    if twice:
        same = sorted(file_name(place) for place, name in names.items() if name == twice[0])
        raise SourceError(f"{', '.join(same)} would have the same name {twice[0]!r}: keep one of them")
    return names


def order(one: Found, names: dict[str, str]) -> tuple[str, int]:
    """Sort key: the name; but the files of a saved data set stand at its folder's name, in the order that the data set gives them."""
    name = names[one.place]
    return (name, -1) if not one.group else (name[: name.rfind("/") + 1], one.position)
