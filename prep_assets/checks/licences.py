"""Licences of rows: counted from the sources again, and held to those that the configuration allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from prep_assets.checks.sources_again import domain_source, stored_rows
from prep_assets.config.family import Family
from prep_assets.errors import PrepAssetsError
from prep_assets.pipeline.asset import Asset, FromRows, Store

UNKNOWN = "unknown"
"""The licence of a row that names none."""


def licences_of(store: Store) -> Counter[str]:
    """Source rows of a store that is made from rows, by licence. A row that names several counts under all of them, joined by commas.

    Raises:
        SourceError: a source changed since it was pinned.
    """
    domain, rows = domain_source(store).domain, dict[int, str]()
    for table in store.streams().values():
        if domain.licence_key is None:
            rows |= dict.fromkeys(table.origins.places.tolist(), domain.licence or UNKNOWN)
        for stored in stored_rows(store, table) if domain.licence_key else ():
            for place, payload in zip(stored.places.tolist(), stored.payloads, strict=True):
                rows[place] = licence_of(payload, str(domain.licence_key))
    return Counter(rows.values())


def licence_of(row: Mapping[str, Any], key: str) -> str:
    """The licence that a row names under a dotted key, in lower case; several, sorted and joined by commas."""
    value: Any = row
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    named = sorted({str(each).strip().lower() for each in (value if isinstance(value, list | tuple) else [value]) if each is not None})
    return ", ".join(filter(None, named)) or UNKNOWN


def licence_rules(asset: Asset, family: Family) -> dict[str, Any]:
    """What decides whether rows of an asset have licences that are allowed; empty where there is no rule, or where other stores bring it records."""
    if not family.quality.licences or not isinstance(asset.source, FromRows):
        return {}
    domains = {name: [domain.licence_key, domain.licence] for name, domain in family.domains.items()}
    return {"licences": {"allow": sorted(family.quality.licences["allow"]), "domains": domains}}


def forbidden(store: Store, allow: list[str], numbers: dict[str, float]) -> str:
    """What is wrong with the licences of a store's rows; ``""`` if all are allowed. Their counts go into `numbers`."""
    try:
        counts = licences_of(store)
    except PrepAssetsError as error:
        return f"quality.licences: which licences its rows have cannot be told: {error}"
    numbers |= {f"licence {name}": count for name, count in counts.items()}
    wrong = {name: count for name, count in sorted(counts.items()) if not {*name.split(", ")} <= {*allow}}
    listed = ", ".join(f"{name} {count:,}" for name, count in wrong.items())
    rows = f"{sum(wrong.values()):,} of {counts.total():,} rows have licences that quality.licences does not allow"
    return f"{rows}: {listed}. Leave them out with where, or allow these" if wrong else ""
