"""What a domain is read from, in a form that can travel to other processes, and the readings of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from prep_assets.assets.reading.contamination import Benchmarks
from prep_assets.assets.reading.domain import Reading
from prep_assets.assets.reading.examples import Deduplicator, Duplicates, converter
from prep_assets.assets.reading.pinned import Pinned, domain_of, pinned
from prep_assets.assets.reading.routing import Router, router_of
from prep_assets.assets.reading.stretches import Stretch
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Domain, Family


@dataclass(frozen=True)
class Source:
    """A pinned domain.

    Attributes:
        workspace: where its family is configured.
        kind: the family.
        name: of the domain.
        gives: the form that the family needs, see `converter`.
        sources, router: its files, and what picks its rows.
        max_items: use at most so many records to train on.
    """

    workspace: Workspace
    kind: type[Family]
    name: str
    gives: type
    sources: Pinned
    router: Router
    max_items: int | None

    @classmethod
    def of(cls, workspace: Workspace, kind: type[Family], raw: str, name: str, *, gives: type, max_items: int | None = None) -> Source:
        """The source of a pinned domain.

        Args:
            raw: the asset that pinned it.
            max_items: a limit of the family's, beside the domain's own.

        Raises:
            StoreError, SourceError: see `pinned`.
        """
        family = workspace.family(kind)
        limit = min((number for number in (domain_of(family, name).max_items, max_items) if number is not None), default=None)
        return cls(workspace, kind, name, gives, pinned(workspace, kind, raw, name), router_of(workspace, family, name), limit)

    @property
    def family(self) -> Family:
        """The family's configuration."""
        return self.workspace.family(self.kind)

    @property
    def domain(self) -> Domain:
        """The domain's configuration."""
        return domain_of(self.family, self.name)

    @cached_property
    def benchmarks(self) -> Benchmarks | None:
        """What no record may hold; read when it is first needed, and then kept."""
        found = self.sources.benchmarks
        return Benchmarks.read(found, self.family.decontaminate.words) if found else None

    def reading(self) -> Reading:
        """The whole domain, from front to end."""
        return self._reading(Deduplicator() if self.family.preprocessing.deduplicate else None, self.max_items, None)

    def part(self, stretches: Sequence[Stretch], duplicates: Duplicates | None, limit: int | None) -> Reading:
        """Some stretches of it.

        Args:
            duplicates: which of their records came before, there or elsewhere.
            limit: use at most so many of their records to train on.
        """
        return self._reading(duplicates, limit, stretches)

    def rows(self, stretches: Sequence[Stretch]) -> Reading:
        """Some stretches of it, read for their rows only."""
        return replace(self._reading(None, None, stretches), benchmarks=None)

    def travelling(self) -> Source:
        """This source as it goes to another process."""
        return replace(self, workspace=self.workspace.travelling(self.kind))

    def _reading(self, duplicates: Duplicates | None, limit: int | None, stretches: Sequence[Stretch] | None) -> Reading:
        return Reading(
            self.name,
            self.domain,
            self.router,
            self.sources,
            converter(self.domain, self.gives),
            duplicates,
            self.benchmarks,
            limit,
            self.workspace.progress,
            stretches,
        )
