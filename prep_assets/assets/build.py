"""A build: everything that decides a store's bytes, and the function that writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prep_assets.errors import PrepAssetsError
from prep_assets.records.quarantine import Refusal, read_quarantine
from prep_assets.stores.manifest import build_key, differences
from prep_assets.stores.published import Draft, Place, Published
from prep_assets.workers.garbage import rare_collections


@dataclass(frozen=True)
class Build:
    """How to make one store.

    Attributes:
        place: where it goes.
        recipe: everything that can change its bytes, as JSON: inputs by content hash, options, versions.
        plain_recipe: the recipe without this run's overrides.
        write: writes the payload into an empty directory and refused records into the quarantine file.
        audit: structural checks on what was written; raises to forbid publication.
        options: what this run sets over the configuration file.
        may_be_empty: whether a store that nothing was read for is sound, e.g. where the configuration has no domain for it.
    """

    place: Place
    recipe: Mapping[str, Any]
    plain_recipe: Mapping[str, Any]
    write: Callable[[Path, Path], Draft]
    audit: Callable[[Path], None]
    may_be_empty: Callable[[], bool] = lambda: False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The build key."""
        return build_key(self.recipe)

    @property
    def overrides(self) -> tuple[str, ...]:
        """What this run's options change in the recipe, e.g. ``packing.row_len``; nothing where the file says the same."""
        return differences(self.plain_recipe, self.recipe)

    def propose(self, *, draft: bool = False, again: bool = False) -> Published:
        """Write and audit; or find that the store is already there. It is not current before `place.accept` makes it so."""
        try:
            with rare_collections():
                return self.place.propose(
                    self.key,
                    self._write,
                    config_key=build_key(self.plain_recipe),
                    recipe=dict(self.recipe),
                    audit=self.audit,
                    options=self.options if self.overrides else None,
                    draft=draft,
                    again=again,
                )
        except PrepAssetsError as error:
            raise type(error)(f"{self.place.label}: {error}") from error

    def _write(self, payload: Path, quarantine: Path) -> Draft:
        draft = self.write(payload, quarantine)
        if draft.counts.get("read") == 0 and not self.may_be_empty():
            raise PrepAssetsError("there is nothing to build from: what it reads holds no record. Add sources, or hold out a smaller share")
        if draft.counts.get("read") and not draft.counts.get("kept"):
            raise PrepAssetsError(all_refused(draft.counts["read"], read_quarantine(quarantine)))
        return draft


def all_refused(read: int, refusals: Iterable[Refusal]) -> str:
    """The message where all records were refused: how many for which reason, and the first refusal of the most frequent one."""
    counts, first = Counter[str](), dict[str, Refusal]()
    for each in refusals:
        reason = f"{each.stage}/{each.reason}"
        counts[reason] += 1
        first.setdefault(reason, each)
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(counts.items()))
    message = f"all {read:,} records were refused ({reasons})."
    if not counts:
        return message
    example = first[(most := counts.most_common(1)[0][0])]
    which = f"The first one of {most}" if len(counts) > 1 else "The first one"
    return f"{message} {which}, {example.id}: {example.detail}"
