"""How many domains a run left as they were."""

from __future__ import annotations

from dataclasses import dataclass, field

from prep_assets.engine.events import Accepted, Event, Planned, Refused, Skipped

Domain = tuple[str, str]
"""Family and domain."""


@dataclass(slots=True)
class Tally:
    """The domains of a run.

    Attributes:
        every: all that the stores asked for are made from.
        touched: those with a store that was written, or could not be.
        works: whether anything is built at all.
    """

    every: set[Domain] = field(default_factory=set)
    touched: set[Domain] = field(default_factory=set)
    works: bool = False

    def add(self, event: Event) -> None:
        """Count an event. A store that is found with the content that is asked for is reused."""
        match event:
            case Planned(steps, domains):
                self.every |= domains
                self.works |= any(step.why for step in steps)
            case Accepted(step, published) if step.partition and not published.reused:
                self.touched.add((step.asset.family, step.partition))
            case Refused(step) | Skipped(step) if step.partition:
                self.touched.add((step.asset.family, step.partition))
            case _:
                pass

    def __str__(self) -> str:
        """``12 of 14 domains reused``; nothing where the run has one only, or nothing to do."""
        if len(self.every) < 2 or not self.works:
            return ""
        return f"{len(self.every - self.touched):,} of {len(self.every):,} domains reused"
