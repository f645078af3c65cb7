"""A place under any sequence of builds, checks, drafts, damage and pruning: its pointers and versions are those of a model, wherever it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from prep_assets.errors import StoreError
from prep_assets.extensions.buckets.bucket import Bucket
from prep_assets.stores.manifest import Result
from prep_assets.stores.published import Draft, Place
from prep_assets.stores.remote import local_root, remote_of
from prep_assets.stores.version_folders import Published
from prep_assets_tests.effort import SOAK, examples

KEYS, CONFIGS = ("a" * 64, "b" * 64), ("c" * 64, "d" * 64)
HELD, FAILED = {"sound": Result(True, "")}, {"sound": Result(False, "3 rows")}
FOUND = {"file_hashes": Result(False, "scrub: bytes 0 to 1 of x are not what they were")}


@dataclass
class Version:
    """What is known of a version."""

    key: str
    content: bytes
    config: str
    sound: bool = True
    results: dict[str, Result] = field(default_factory=dict)


class Modelled(RuleBasedStateMachine):
    """The place, and beside it the versions by name and the pointers that there should be."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        remote = remote_of(place.directory)
        self.place, self.bucket = place, remote and Bucket(remote.url)
        self.versions: dict[str, Version] = {}
        self.pointers = dict.fromkeys(("current", "candidate", "draft", "damaged"), "")
        self.gone: set[str] = set()
        self.made: dict[str, Published] = {}

    def sound(self, name: str) -> bool:
        return self.versions[name].sound and name != self.pointers["damaged"]

    @rule(
        key=st.sampled_from(KEYS),
        content=st.sampled_from([b"0", b"1"]),
        config=st.sampled_from(CONFIGS),
        draft=st.booleans(),
        again=st.booleans(),
        accepted=st.booleans(),
    )
    def propose(self, key: str, content: bytes, config: str, draft: bool, again: bool, accepted: bool) -> None:
        sound = sorted((name for name in self.versions if self.versions[name].key == key and self.sound(name)), key=self.rank)
        reused = bool(sound) and not again
        stem = f"{key[:20]}-{content_hash(content)[:12]}"
        free = (name for number in count(1) if (name := stem + f"-{number}" * (number > 1)) not in self.gone)
        name = sound[0] if reused else next(name for name in free if name not in self.versions or self.sound(name))
        new = self.versions.setdefault(name, Version(key, content, config))
        if reused and not draft:
            new.config = config

        def write(payload: Path, quarantine: Path) -> Draft:
            assert not reused, "a sound store is written again"
            (payload / "x").write_bytes(content)
            quarantine.write_bytes(b"{}\n")
            return Draft({}, {}, ())

        made = self.made[name] = self.place.propose(key, write, config_key=config, recipe={}, draft=draft, again=again)
        assert (made.version, made.reused, made.manifest.config_key, made.results or {}) == (name, reused, new.config, new.results)
        differs = bool(sound) and self.versions[sound[0]].content != new.content
        assert any("two builds of one key differ, in x" in note for note in made.notes) == differs
        self.pointers |= {"draft": name} if draft else {"candidate": name * (name != self.pointers["current"])}
        if accepted:
            self.accept("draft" if draft else "candidate", holds=True)

    def rank(self, name: str) -> tuple[bool, str]:
        return name != self.pointers["current"], name

    @rule(pointer=st.sampled_from(["candidate", "draft"]), holds=st.booleans())
    def check(self, pointer: str, holds: bool) -> None:
        self.accept(pointer, holds=holds)

    def accept(self, pointer: str, *, holds: bool) -> None:
        if not (name := self.pointers[pointer]):
            return
        published = self.place.backend.published(name)
        if not holds:
            with pytest.raises(StoreError, match=r"is not published: it fails sound"):
                self.place.accept(published, FAILED)
            return
        if name == self.pointers["damaged"]:  # it was a draft and current, and was set aside
            with pytest.raises(StoreError, match=f"damage was found in {name} meanwhile"):
                self.place.accept(published, HELD)
            return
        self.place.accept(published, HELD)
        self.versions[name].results = dict(HELD)
        self.pointers = {kind: "" if version == name else version for kind, version in self.pointers.items()} | {
            "current": name,
            "damaged": "",
        }

    @rule(pointer=st.sampled_from(["candidate", "draft", "current"]))
    def record(self, pointer: str) -> None:
        if name := self.pointers[pointer]:
            self.place.record(self.place.backend.published(name), FOUND)
            self.versions[name].results |= FOUND

    @precondition(lambda self: self.pointers["current"])
    @rule()
    def set_aside(self) -> None:
        name, backend = self.pointers["current"], self.place.backend
        published = backend.published(name)
        for other in {*self.versions} - {name}:
            assert not self.place.set_aside(backend.published(other), FOUND)
        assert self.place.set_aside(published, FOUND) and self.place.set_aside(published, {})
        with pytest.raises(StoreError, match=f"damage was found in {name} meanwhile"):
            self.place.accept(published, HELD)
        self.versions[name].results |= FOUND
        self.pointers |= {"current": "", "damaged": name}

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def spoil(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.versions)))
        if self.bucket is None:
            (self.place.directory / "versions" / name / "x").write_bytes(b"spoilt")
        else:
            self.bucket.put(f"versions/{name}/x", b"spoilt")
        self.versions[name].sound = False

    @rule()
    def prune(self) -> None:
        unused = {*self.versions} - {*self.pointers.values()}
        assert set(self.place.remove_unused()) == unused
        for name in unused:
            with pytest.raises(StoreError, match=rf"asset\[part\]: .*{name} cannot be published.*Materialize the asset again"):
                self.place.accept(self.made[name], HELD)
            del self.versions[name]
        self.gone |= unused if self.bucket else set()  # a late request must not find the name taken by another store

    @invariant()
    def is_as_modelled(self) -> None:
        now = self.place.pointers
        assert {name: getattr(now, name) for name in self.pointers} == self.pointers
        assert (self.place.backend.names(), self.place.leftovers()) == (sorted(self.versions), ())
        assert set(self.place.unused()) == {*self.versions} - {*self.pointers.values()}
        for kind, look in (("current", self.place.current), ("candidate", self.place.candidate), ("draft", self.place.draft)):
            if kind == "current" and self.pointers["damaged"]:
                with pytest.raises(StoreError, match=r"is damaged, so nothing reads it: scrub: bytes 0 to 1 of x"):
                    look()
            elif (found := look()) is None:
                assert not self.pointers[kind]
            else:
                expected = self.versions[self.pointers[kind]]
                assert (found.version, found.results or {}) == (self.pointers[kind], expected.results)
                if expected.sound:
                    found.verify()
                    assert ((found.directory / "x").read_bytes(), found.quarantine is not None) == (expected.content, True)
                else:
                    with pytest.raises(StoreError, match="x: "):
                        found.verify()


def content_hash(content: bytes) -> str:
    """As a manifest has it: of names and hashes of files, in canonical JSON."""
    return sha256(f'{{"x":"{sha256(content).hexdigest()}"}}'.encode()).hexdigest()


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Place]]:
    """Makes empty places on one ground."""
    numbers = count()
    if request.param == "disk":
        yield lambda: Place(tmp_path / str(next(numbers)), "asset", "part")
        return
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "cache"))
    if request.param != "memory":
        request.getfixturevalue({"s3": "failing_s3", "az": "azure", "gs": "google"}[request.param])
    root = f"{request.param}://bucket/{sha256(str(tmp_path).encode()).hexdigest()}"
    yield lambda: Place(local_root(f"{root}/{next(numbers)}"), "asset", "part")


@pytest.mark.parametrize(("places", "tried"), [("disk", 60), ("memory", 30), ("s3", 3), ("az", 3), ("gs", 3)], indirect=["places"])
def test_pointers_and_versions_are_those_of_a_model(places: Callable[[], Place], tried: int) -> None:
    # twenty steps are read as they are: to look for fewer takes minutes
    how = settings(
        max_examples=examples(tried) if tried > 10 else 2 if SOAK else 1, stateful_step_count=20, deadline=None, phases=[Phase.generate]
    )
    run_state_machine_as_test(lambda: Modelled(places()), settings=how)
