"""Actors that take turns: each runs until it asks the simulated store for something, and a seed decides who goes on."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

from greenlet import greenlet


class Over(BaseException):
    """The schedule has ended; whoever is still waiting ends here."""


class Actors:
    """The actors of one schedule.

    Attributes:
        chance: what the seed decides.
        clock: turns so far.
        now: whose turn it is.
        violations: what does not hold, in words.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock, self.now = 0, ""
        self.violations: list[str] = []
        self.on_death: list[Callable[[str], None]] = []
        self._over = False
        self._hub = greenlet.getcurrent()
        self._waiting: list[tuple[str, greenlet]] = []
        self._dead: list[greenlet] = []
        self._asleep: list[tuple[str, greenlet]] = []
        self._sleeps = False

    def add(self, name: str, work: Callable[[], None]) -> None:
        """An actor."""
        self._waiting.append((name, greenlet(work)))

    def time(self) -> float:
        """One second a turn."""
        return float(self.clock)

    def turn(self) -> None:
        """Let others go on; called by an actor before each of its steps."""
        if self._over:
            raise Over
        self._hub.switch()
        if self._over:
            raise Over

    def sleep(self) -> None:
        """Let others go on until one of them wakes all who sleep."""
        self._sleeps = True
        self.turn()

    def wake(self) -> None:
        """Let all go on who sleep."""
        self._waiting += self._asleep
        self._asleep.clear()

    def run(self, deaths: float = 0.0) -> None:
        """Let all take turns until they have ended, in some schedules many in a row.

        At each turn an actor dies with this chance, and leaves everything as it is then.
        """
        waiting, draw = self._waiting, self.chance.random
        stays, at = self.chance.choice((0.0, 0.5, 0.8, 0.95)), 0
        while waiting:
            if at >= len(waiting) or draw() >= stays:
                at = int(draw() * len(waiting))
            name, actor = waiting[at]
            if deaths and draw() < deaths:
                self._dead.append(waiting.pop(at)[1])
                for tell in self.on_death:
                    tell(name)
                continue
            self.clock += 1
            self.now = name
            actor.switch()
            if actor.dead:
                del waiting[waiting.index((name, actor))]
            elif self._sleeps:
                self._sleeps = False
                self._asleep.append(waiting.pop(waiting.index((name, actor))))

    def end(self) -> None:
        """End those who died or sleep: nothing that they still do counts."""
        self._over = True
        for actor in (*self._dead, *(actor for _, actor in self._asleep)):
            with suppress(Over):
                actor.throw(Over)

    def wrong(self, what: str) -> None:
        """Note that something does not hold."""
        self.violations.append(f"turn {self.clock}, {self.now}: {what}")
