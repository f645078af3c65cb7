"""Assets that several families have: verdicts on the examples of a domain, of each entry point of `prep_assets.verdicts`."""

from __future__ import annotations

from prep_assets import plugins
from prep_assets.pipeline.asset import Asset


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
