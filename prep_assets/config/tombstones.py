"""Tombstones: rows that must never be used again, whatever is fetched or built. ``forgotten.jsonl`` in the configuration folder, one a line:

    {"family": "sft", "domain": "gsm8k", "record": "gsm8k.jsonl:17", "digest": "…", "reason": "…"}

The digest is that of the row's content, so a row stays forgotten when it moves in its file, and when its file is fetched again. It says nothing of
what the row said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from prep_assets.config.models import Family
from prep_assets.disk.strict_json import loads
from prep_assets.errors import ConfigError

FILE = "forgotten.jsonl"
F = TypeVar("F", bound=Family)
_SORTED = msgspec.json.Encoder(order="sorted")


class Tombstone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row that is forgotten.

    Attributes:
        family, domain: where it is forgotten.
        record: its id when it was.
        digest: see `payload_digest`.
        reason: why, for people.
    """

    family: str
    domain: str
    record: str
    digest: str
    reason: str = ""


def payload_digest(payload: Any) -> str:
    """sha256 of a row as JSON with sorted keys, in hex."""
    return hashlib.sha256(_SORTED.encode(payload)).hexdigest()


def read_tombstones(folder: Path) -> tuple[Tombstone, ...]:
    """The tombstones of a configuration folder.

    Raises:
        ConfigError: a line is not a tombstone. Rows that must stay forgotten must not come back because of a typing error.
    """
    path = folder / FILE
    if not path.is_file():
        return ()
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            found += [msgspec.convert(loads(line), Tombstone)] if line.strip() else []
        except (msgspec.ValidationError, ValueError) as error:
            raise ConfigError(f"{path}, line {number}: {error}. Fix the line; it keeps a row out of every store") from error
    return tuple(found)


def add_tombstones(folder: Path, tombstones: Iterable[Tombstone]) -> tuple[Tombstone, ...]:
    """Write those that are not there yet, in one step, and return them."""
    there = read_tombstones(folder)
    existing = {(each.family, each.domain, each.digest) for each in there}
    new = tuple(each for each in tombstones if (each.family, each.domain, each.digest) not in existing)
    if new:
        path = (folder / FILE).resolve()  # the configurations of a component share one
        work = path.with_name(f".{FILE}-new")
        work.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in (*there, *new)))
        work.replace(path)
    return new


def with_tombstones(family: F, name: str, folder: Path) -> F:
    """The family's configuration with what each of its domains must leave out."""
    own = [each for each in read_tombstones(folder) if each.family == name]
    if not own:
        return family
    digests = {domain: frozenset(each.digest for each in own if each.domain == domain) for domain in family.domains}
    return family.model_copy(update={"domains": {key: domain.forgetting(digests[key]) for key, domain in family.domains.items()}})
