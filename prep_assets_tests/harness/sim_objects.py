"""A simulated bucket: each request is a turn of its own, and may fail in every way that a network allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prep_assets.stores.bucket import Entry, Held, Unanswered
from prep_assets_tests.harness.sim_actors import Actors


@dataclass(frozen=True)
class Faults:
    """How often, of all requests: one fails; is carried out and answered with an error; is carried out later, and the error comes at once;
    meets another one (409)."""

    refused: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    conflict: float = 0.0


class SimObjects:
    """Objects in memory. `watch` is told of each write and deletion before it is carried out."""

    url = "sim://bucket"

    def __init__(self, actors: Actors) -> None:
        self.actors, self.faults = actors, Faults()
        self.held: dict[str, Held] = {}
        self.watch: Callable[[str, bytes | None], None] = lambda key, data: None
        self._tags = 0
        self._late: list[Callable[[], object]] = []

    def get(self, key: str) -> Held | None:
        self._turn()
        if self.actors.chance.random() < self.faults.refused:
            raise Unanswered(key)
        return self.held.get(key)

    def read(self, key: str, start: int = 0) -> Iterator[bytes]:
        if (held := self.get(key)) is None:
            raise FileNotFoundError(key)
        yield held.data[start:]

    def put(self, key: str, data: bytes) -> None:
        self._write(lambda: self._set(key, data))

    def put_new(self, key: str, data: bytes) -> bool:
        return self._write(lambda: key not in self.held and self._set(key, data), conflicts=True)

    def put_if(self, key: str, data: bytes, tag: str) -> bool:
        return self._write(lambda: key in self.held and self.held[key].tag == tag and self._set(key, data), conflicts=True)

    def upload(self, key: str, path: Path) -> None:
        raise AssertionError("nothing is read from disk here")

    def delete(self, key: str) -> None:
        self._write(lambda: self._unset(key))

    def entries(self, prefix: str) -> Iterator[Entry]:
        self._turn()
        return iter([Entry(key, len(held.data), held.modified) for key, held in sorted(self.held.items()) if key.startswith(prefix)])

    def folders(self, prefix: str) -> list[str]:
        self._turn()
        return sorted({key[len(prefix) :].partition("/")[0] for key in self.held if key.startswith(prefix)})

    def pause(self, attempt: int) -> None:
        self._turn()

    def settle(self) -> None:
        """Carry out what was late."""
        while self._late:
            self._late.pop(0)()

    def _turn(self) -> None:
        self.actors.turn()
        if self._late and self.actors.chance.random() < 0.1:
            self._late.pop(0)()

    def _write(self, write: Callable[[], bool], *, conflicts: bool = False) -> bool:
        self._turn()
        drawn, faults = self.actors.chance.random(), self.faults
        if (drawn := drawn - faults.refused) < 0:
            raise Unanswered("refused")
        if (drawn := drawn - faults.lost) < 0:
            write()
            raise Unanswered("lost")
        if (drawn := drawn - faults.late) < 0:
            self._late.append(write)
            raise Unanswered("late")
        if conflicts and drawn < faults.conflict:
            return False
        return write()

    def _set(self, key: str, data: bytes) -> bool:
        self.watch(key, data)
        self._tags += 1
        self.held[key] = Held(data, str(self._tags), float(self.actors.clock))
        return True

    def _unset(self, key: str) -> bool:
        if key in self.held:
            self.watch(key, None)
            del self.held[key]
        return True
