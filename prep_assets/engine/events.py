"""Events: what the engine reports while it works, and how many domains it left as they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from prep_assets.engine.plan import Step
from prep_assets.errors import PrepAssetsError
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.version_folders import Published
from prep_assets.workers.shards import Effort


class Planned(Struct, frozen=True):
    """What will be done, in this order.

    Attributes:
        domains: family and domain of all that the stores asked for are made from, those among them that nothing needs to be done for.
    """

    steps: tuple[Step, ...]
    domains: frozenset[tuple[str, str]] = frozenset()


class Started(Struct, frozen=True):
    """Work on a store begins."""

    step: Step


class Progress(Struct, frozen=True):
    """How far a piece of work is.

    Attributes:
        what: in words.
        done, total: in bytes, records or rows.
    """

    what: str
    done: int
    total: int


class Written(Struct, frozen=True):
    """A store is written, or found sound where it was (`published.reused`). Its checks are next."""

    step: Step
    published: Published


class Checked(Struct, frozen=True):
    """A check has run."""

    step: Step
    check: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Accepted:
    """A store holds and can be used.

    Attributes:
        published: the store; `published.reused` where it was there already.
        verdicts: of each check; of a store that was there and not looked at again, what they said before.
        overrides: what options of one run changed against the configuration file, e.g. ``packing.row_len``.
        draft: whether it is a draft, so that `current` has not moved.
        effort: what it took of workers.
        seconds: how long it took.
    """

    step: Step
    published: Published
    verdicts: Mapping[str, Verdict]
    overrides: tuple[str, ...] = ()
    draft: bool = False
    effort: Effort = field(default_factory=Effort)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Candidate(Accepted):
    """A store whose checks hold and that is not current yet: `prep_assets.engine.execute.make_current` makes it so."""


class Blocked(Struct, frozen=True):
    """A store could not be built, or fails a check; `current` has not moved.

    Attributes:
        reason: what is wrong, where, the numbers and the remedy.
        verdicts: of each check, where it came so far.
        published: the store that fails, where it was written.
        error: what stopped the build, where it was not a check.
    """

    step: Step
    reason: str
    verdicts: Mapping[str, Verdict]
    published: Published | None = None
    error: PrepAssetsError | None = None


class Skipped(Struct, frozen=True):
    """A store is not built, because something that it is made from could not be."""

    step: Step
    because: Step


Event = Planned | Started | Progress | Written | Checked | Candidate | Accepted | Blocked | Skipped


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
            case Blocked(step) | Skipped(step) if step.partition:
                self.touched.add((step.asset.family, step.partition))
            case _:
                pass

    def __str__(self) -> str:
        """``12 of 14 domains reused``; nothing where the run has one only, or nothing to do."""
        if len(self.every) < 2 or not self.works:
            return ""
        return f"{len(self.every - self.touched):,} of {len(self.every):,} domains reused"
