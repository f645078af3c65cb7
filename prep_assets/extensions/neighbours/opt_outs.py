"""Opt-outs by rule or list: which rows of the sources `forget` removes, by what their fields say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from prep_assets.config.models import FAMILIES
from prep_assets.data.blocks import ABSENT, value_at
from prep_assets.data.files import record_id
from prep_assets.errors import ConfigError, nearest, require_known
from prep_assets.extensions.explain.streams import files_of, rows_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Record

_HOST = re.compile(r"host\((.+)\)")
FEW = 8
"""Fields that an error names."""


class Rule(Struct, frozen=True):
    """The rows that have, in each of these fields, one of its values.

    Attributes:
        values: field → values, as text. `meta.author` reaches into objects; ``host(url)`` is the host of a URL, and each of those above it, without case.
    """

    values: Mapping[str, frozenset[str]]

    def holds(self, payload: Mapping[str, Any]) -> bool:
        """Whether it asks for a row."""
        return all(not values.isdisjoint(said_of(payload, field)) for field, values in self.values.items())


class Matched(NamedTuple):
    """A row that a rule asks for."""

    family: str
    domain: str
    id: str
    payload: Mapping[str, Any]


def rule_of(conditions: Sequence[str], field: str = "", listed: Iterable[str] = ()) -> Rule:
    """Read conditions ``FIELD=VALUE``; several values of one field are alternatives, those of `listed` too.

    Raises:
        ConfigError: a condition that is none.
    """
    values: dict[str, set[str]] = {}
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise ConfigError(f"{condition!r} is no condition. Write FIELD=VALUE, e.g. author=Ada or 'host(url)=example.org'")
        values.setdefault(name.strip(), set()).add(value.strip())
    if field:
        values.setdefault(field, set()).update(listed)
    return Rule({name: frozenset(map(str.lower, found) if _HOST.fullmatch(name) else found) for name, found in values.items()})


def listed_in(path: Path) -> list[str]:
    """The lines of a list, without empty ones and those that begin with ``#``.

    Raises:
        ConfigError: it cannot be read, or has no line.
    """
    try:
        lines = [line.strip() for line in path.read_text("utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}. Give a file of text, one record or value a line") from error
    if not (found := [line for line in lines if line and not line.startswith("#")]):
        raise ConfigError(f"{path} lists nothing. Write one record or value a line")
    return list(dict.fromkeys(found))


def said_of(payload: Mapping[str, Any], field: str) -> frozenset[str]:
    """What a field of a row says, as text: each element of a list, a number as JSON; of ``host(url)`` the host and those above it."""
    texts = frozenset(_texts(value_at(payload, _of(field))))
    return frozenset(name for text in texts for name in _hosts(text)) if _HOST.fullmatch(field) else texts


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, bool):
        yield str(value).lower()
    elif isinstance(value, str | int | float):
        yield str(value)


def _hosts(text: str) -> Iterator[str]:
    """``a.example.org``, ``example.org`` and ``org`` of its URL."""
    try:
        host = urlsplit(text if "//" in text else f"//{text}").hostname or ""
    except ValueError:
        return
    parts = host.rstrip(".").split(".")
    yield from (".".join(parts[at:]) for at in range(len(parts)) if host)


def matching(workspace: Workspace, rule: Rule, domains: Sequence[str] = ()) -> tuple[list[Matched], list[str]]:
    """The rows of all pinned sources that a rule asks for, and the raw stores that are not built, so that nothing is known of their rows.

    Args:
        domains: only these.

    Raises:
        ConfigError: no such domain; or no row has one of the fields.
        SourceError: a source changed since it was pinned.
    """
    configured = {(family, name) for family, kind in FAMILIES.items() if workspace.has(family) for name in workspace.family(kind).domains}
    names = sorted({name for _, name in configured})
    for name in sorted(domains):
        require_known("no domain", name, names, "Domains")
    found, unbuilt, unmet, fields = list[Matched](), list[str](), set(rule.values), set[str]()
    for family, name in sorted(configured):
        if domains and name not in domains:
            continue
        if workspace.published(f"{family}_raw", name) is None:
            unbuilt.append(f"{family}_raw[{name}]")
            continue
        for number, file in enumerate(files_of(workspace, f"{family}_raw", name)):
            for row in rows_of(workspace, f"{family}_raw", name, number):
                if not isinstance(row, Record):
                    continue
                fields.update(row.payload if len(fields) < 1000 else ())
                unmet -= {field for field in unmet if value_at(row.payload, _of(field)) is not ABSENT}
                if rule.holds(row.payload):
                    found.append(Matched(family, name, record_id(file, row.row), row.payload))
    if unmet:
        field = _of(min(unmet))
        known = ", ".join(sorted(fields)[:FEW])
        raise ConfigError(
            f"no row has a field {field!r}{nearest(field, sorted(fields)) or '.'} Fields of the rows: {known or 'none was read'}"
        )
    return found, unbuilt


def _of(field: str) -> str:
    host = _HOST.fullmatch(field)
    return host[1] if host else field
