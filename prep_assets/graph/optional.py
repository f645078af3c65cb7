"""Assets that several families have: verdicts on the examples of a domain, of each entry point of `prep_assets.verdicts`,
and the stores of all domains as one."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from prep_assets import plugins
from prep_assets.pipeline.asset import Asset, FromParts, FromRows
from prep_assets.pipeline.merging import merge_parts


def verdict_assets(raw: Asset, *further: str) -> dict[str, Asset]:
    """The assets that judge the rows of a family, by their last words, which an entry point gives; what reads the rows has them among its inputs.

    Args:
        further: options that limit which rows are read.
    """
    entries, found = plugins.entries("verdicts"), dict[str, Asset]()

    def add(name: str) -> Asset:
        if name not in found:
            before = {each: add(each) for each in plugins.part_of(entries[name], "AFTER") if each in entries}
            found[name] = plugins.part_of(entries[name], "verdict_asset")(raw, before, further)
        return found[name]

    for name in entries:
        add(name)
    return found


def merged_asset(part: Asset, description: str, *, promises: tuple[str, ...] = (), **attributes: Any) -> Asset:
    """The asset that merges the stores of all domains of ``<name>_by_domain`` into one store of the same streams and columns.

    Args:
        promises: what holds of what `merge_parts` writes.
        attributes: what else is not as in `part`.
    """
    counts = (*part.source.counts, *part.source.uncounted) if isinstance(part.source, FromRows) else ()
    merged = {
        "name": part.name.removesuffix("_by_domain"),
        "description": description,
        "write": merge_parts,
        "promises": promises,
        "inputs": (("domains", part),),
        "partitioned": False,
        "source": FromParts((part.name,), counts=counts),
    }
    return replace(part, **{**merged, **attributes})
