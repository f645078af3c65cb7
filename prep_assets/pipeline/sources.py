"""A domain's pinned source files: routing, inline reasoning, decontamination, and domains found in the data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from prep_assets.config.family import Chat, Domain, Family
from prep_assets.data.blocks import Block
from prep_assets.data.files import SourceFile, record_id
from prep_assets.data.pins import Pin, verify_pins
from prep_assets.data.read import read_blocks
from prep_assets.data.tables import Cut
from prep_assets.errors import ConfigError, Refused, SourceError, nearest
from prep_assets.pipeline.source_files import addresses, value_of
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.stores.guards import Guards, load_json
from prep_assets.stores.version_folders import Published
from prep_assets.text.render import InlineReasoning
from prep_assets.workers.pool import require_memory

# A domain's source files as its raw asset pinned them.

SOURCES = "sources.json"
BLOCKS = "blocks.json"
"""Hashes of the files' blocks, which prove that a part of a file is what was pinned."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A domain's source files and benchmarks as its raw asset pinned them, checked to be unchanged."""

    files: tuple[SourceFile, ...]
    test_files: tuple[SourceFile, ...]
    rows: int
    content_hash: str
    benchmarks: tuple[SourceFile, ...] = ()
    cuts: tuple[tuple[Cut, ...], ...] = ()
    """Possible cuts of every file, training files first."""

    @property
    def bytes(self) -> int:
        """Size of all files as stored."""
        return sum(file.size for file in (*self.files, *self.test_files))


def domain_of(family: Family, name: str) -> Domain:
    """The configuration of a domain.

    Raises:
        ConfigError: there is no such domain; the message names the nearest one.
    """
    if name not in family.domains:
        raise ConfigError(f"no domain {name!r}{nearest(name, family.domains) or '.'} The configuration has: {', '.join(family.domains)}")
    return family.domains[name]


def pinned(workspace: Workspace, kind: type[Family], asset: str, name: str) -> Pinned:
    """The source files that the raw asset pinned.

    Raises:
        StoreError: the raw asset has no store, or another one than the build expects.
        SourceError: a file changed since; the message names it and the remedy.
    """
    family = workspace.family(kind)
    domain, remedy = domain_of(family, name), build_command(asset, name)
    raw = workspace.built(asset, name)
    files, test_files = workspace.files(domain), workspace.test_files(domain)
    listed, blocks = read_sources(raw), read_hashes(raw)
    for domain_files, role in ((files, "files"), (test_files, "test_files")):
        expected = [Pin(entry["name"], entry["size"], entry["sha256"], blocks[role][entry["name"]], "") for entry in listed[role]]
        current = {pin.name: pin for pin in workspace.pins(domain_files)}
        pins = [current[pin.name] if pin.name in current and current[pin.name].identity == pin.identity else pin for pin in expected]
        try:
            verify_pins(domain_files, pins)
        except SourceError as error:
            raise SourceError(f"{asset}[{name}]: {error}:\n  {remedy}") from error
    if (found_images := images_pinned(workspace, domain).get("images")) != (expected_images := listed.get("images")):
        raise SourceError(
            f"{asset}[{name}]: the images in {workspace.media_folder(domain)} changed since they were pinned: expected {expected_images}, "
            f"found {found_images}. Pin them again, or restore the old ones:\n  {remedy}"
        )
    if benchmarks_pinned(workspace, family).get("benchmarks") != listed.get("benchmarks"):
        raise SourceError(f"{asset}[{name}]: the benchmarks of decontaminate changed since they were pinned. Pin them again:\n  {remedy}")
    entries = [entry for role in ("files", "test_files") for entry in listed[role]]
    cuts = tuple(tuple(map(tuple, entry.get("cuts", ()))) for entry in entries)
    rows, sound = sum(entry["rows"] for entry in entries), not raw.manifest.counts["refused"]
    return Pinned(
        proven(files, blocks["files"], remedy, sound),
        proven(test_files, blocks["test_files"], remedy, sound),
        rows,
        raw.manifest.content_hash,
        proven(benchmarks := workspace.benchmarks(family), {pin.name: pin.blocks for pin in workspace.pins(benchmarks)}, remedy),
        cuts,
    )


def proven(files: Iterable[SourceFile], blocks: Mapping[str, str], remedy: str, sound: bool = False) -> tuple[SourceFile, ...]:
    """Files with the hashes they were pinned with, which readers verify.

    Args:
        sound: no row of them was rejected then.
    """
    return tuple(replace(file, blocks=blocks[file.name], remedy=remedy, sound=sound) for file in files)


def read_sources(raw: Published, name: str = SOURCES) -> Mapping[str, Any]:
    """The content of a raw store."""
    loaded: Mapping[str, Any] = load_json(raw.directory / name, Guards())
    return loaded


def read_hashes(raw: Published) -> Mapping[str, Mapping[str, str]]:
    """The block hashes of a raw store: ``files`` or ``test_files`` → file name → hashes."""
    return read_sources(raw, BLOCKS)


def identities(workspace: Workspace, files: tuple[SourceFile, ...]) -> list[dict[str, str | int]]:
    """Name, size and hash of each file."""
    return [pin.identity for pin in workspace.pins(files)]


def images_pinned(workspace: Workspace, domain: Domain) -> dict[str, Any]:
    """The pin of the image folder, if any. It is part of the recipe: another image gives another store."""
    pin = workspace.media_pin(domain)
    return {} if pin is None else {"images": pin}


def benchmarks_pinned(workspace: Workspace, family: Family) -> dict[str, Any]:
    """The pins of benchmarks and the length of a passage, if any. They are part of the recipe: another benchmark gives another store."""
    files = workspace.benchmarks(family)
    return {"benchmarks": {"files": identities(workspace, files), "words": family.decontaminate.words}} if files else {}


# Routing: several domains in one source, told apart by a field of the rows.
#
# Every domain with the same `domain_key` takes the rows with its value (`domain_value`, or its name). A value that no domain of the file declares stops the
# build, so that no row is lost, and no two domains take the same rows.


@dataclass(slots=True)
class Router:
    """Picks the rows of one domain.

    Attributes:
        key: the field that tells domains apart; `None` if the source has one domain.
        value: the field's value in this domain's rows.
        declared: address of a file → values taken by the domains that read it in the same role, for training or held out.
        others: value → number of rows, for values that no domain takes.
    """

    key: str | None
    value: str
    declared: Mapping[str, frozenset[str]] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)

    def taken(self, file: SourceFile) -> frozenset[str]:
        """The values of a file that some domain takes."""
        return self.declared.get(file.url, frozenset({self.value}))

    def picked(self, file: SourceFile, blocks: Iterator[Block]) -> Iterator[Block]:
        """The blocks of a file with this domain's rows only. Unreadable rows belong to every domain of their file."""
        return blocks if self.key is None else map(partial(self._pick, self.taken(file), self.key), blocks)

    def _pick(self, taken: frozenset[str], key: str, block: Block) -> Block:
        values = [value_of(record.payload, key) for record in block.records]
        self.others.update(value for value in values if value not in taken)
        return replace(block, records=[record for record, value in zip(block.records, values, strict=True) if value == self.value])

    def check(self) -> None:
        """Raise if rows belong to no domain.

        Raises:
            SourceError: names the values, the number of rows with each, and what to declare.
        """
        if self.others:
            known = frozenset[str]({self.value}).union(*self.declared.values())
            shown = ", ".join(
                f"{value!r} ({count:,} rows{nearest(value, known - {value})})" for value, count in sorted(self.others.items())[:10]
            )
            raise SourceError(
                f"{self.key!r} holds values that no domain declares: {shown}. Declare a domain of that name (or with domain_value) that reads "
                "the same files, to train on or held out as here, or keep such rows out of the files"
            )


def router_of(workspace: Workspace, family: Family, name: str) -> Router:
    """The router of a domain.

    Raises:
        ConfigError: another domain takes the same rows.
    """
    domain = family.domains[name]
    if domain.domain_key is None:
        return Router(None, domain.value(name))
    peers = {label: peer for label, peer in family.domains.items() if peer.domain_key == domain.domain_key}
    read = {
        label: {"train": addresses(workspace, peer.files), "test": addresses(workspace, peer.test_files)} for label, peer in peers.items()
    }
    values = {label: peer.value(label) for label, peer in peers.items()}
    _check_no_shared_rows(name, domain.domain_key, values, {label: roles["train"] | roles["test"] for label, roles in read.items()})
    declared: dict[str, frozenset[str]] = {}
    for role, urls in read[name].items():
        for url in urls:
            taken = frozenset(values[label] for label in peers if url in read[label][role])
            # if a file is read in both roles, a row must be taken in both
            declared[url] = declared.get(url, taken) & taken
    return Router(domain.domain_key, values[name], declared)


def _check_no_shared_rows(name: str, key: str, values: Mapping[str, str], read: Mapping[str, frozenset[str]]) -> None:
    for other_name, value in values.items():
        shared = sorted(read[name] & read[other_name])
        if other_name != name and value == values[name] and shared:
            first, second = sorted((name, other_name))
            raise ConfigError(
                f"domains {first} and {second} both take the rows of {shared[0]} in which {key!r} is {value!r}. Leave one of them out, give "
                "one another domain_value, or tell the rows apart with `where` alone"
            )


# Reasoning in the text of answers, as configured.


def inline_reasoning(workspace: Workspace, family: Chat) -> InlineReasoning:
    """How a family reads reasoning and typed calls in answers before its template renders them."""
    form = workspace.template(family).form
    return InlineReasoning(family.reasoning, family.reasoning_tags, form.shows_reasoning, family.calls == "auto" and form.shows_calls)


def unrendered_reasoning(family: Chat) -> InlineReasoning:
    """How a family reads reasoning in rows that a trainer renders: blocks stay in the text, which every trainer's template accepts."""
    return InlineReasoning(family.reasoning, family.reasoning_tags, shown=False)


# Decontamination: records that hold a passage of a benchmark are rejected, so that no test set is trained on.
#
# A passage is a run of `words` words, compared without case, punctuation and white space. A benchmark's text of fewer words, but at least `SHORTEST`, counts
# as one passage. Thirteen words is GPT-3's choice (Brown et al., 2020, appendix C).

SHORTEST = 8
"""Fewest words of a passage; shorter texts are too common."""
_PASSAGE = 200
"""Bytes of a passage in memory, plus 8 per word."""
_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class Benchmarks:
    """Passages of benchmarks.

    Attributes:
        words: length of a passage.
        numbers: word → number; words of no benchmark are unknown, and no passage spans them.
        passages: length in words → passage as word numbers → id of its record.
    """

    words: int
    numbers: dict[str, int] = field(default_factory=dict)
    passages: dict[int, dict[tuple[int, ...], str]] = field(default_factory=dict)

    @classmethod
    def read(cls, files: Iterable[SourceFile], words: int) -> Benchmarks:
        """The passages of all strings in all rows of benchmark files, in any source format.

        Raises:
            SourceError: a row cannot be read, or no text of a file is long enough, so that nothing of it could be found.
        """
        benchmarks = cls(words)
        for number, file in enumerate(files):
            added = 0
            for block in read_blocks(file, number):
                benchmarks._require_memory()
                for row in block.unreadable:
                    fault = f"{record_id(file, row.row)} cannot be read ({row.reason}: {row.detail})"
                    raise SourceError(f"decontaminate: {fault}, so that nothing of it could be found. Correct the file")
                for record in block.records:
                    added += sum(benchmarks._add(text, record_id(file, record.row)) for text in strings_in(record.payload))
            if not added:
                raise SourceError(
                    f"decontaminate: {file.name} has no text of {SHORTEST} words, so that nothing of it could be found. Leave it out"
                )
        return benchmarks

    def _require_memory(self) -> None:
        """Raises:
        ConfigError: the passages so far leave no room for more.
        """
        needed = sum((_PASSAGE + 8 * size) * len(known) for size, known in self.passages.items())
        count = sum(map(len, self.passages.values()))
        require_memory(2 * needed, f"the {count:,} passages of benchmarks so far, and as many more,", "Give `decontaminate` fewer files")

    def _add(self, text: str, source: str) -> bool:
        """Note the passages of a text; return whether it is long enough to have one."""
        numbered = tuple(self.numbers.setdefault(word, len(self.numbers)) for word in _words(text))
        size = min(self.words, len(numbered))
        if size >= SHORTEST:
            known = self.passages.setdefault(size, {})
            for start in range(len(numbered) - size + 1):
                known.setdefault(numbered[start : start + size], source)
        return size >= SHORTEST

    def refusal(self, payload: Mapping[str, Any]) -> Refused | None:
        """The rejection of a row that holds a passage, with the passage and where it is from; `None` if it holds none."""
        for text in strings_in(payload):
            words = _words(text)
            for run, start in _known_runs([self.numbers.get(word, -1) for word in words]):
                for size, known in self.passages.items():
                    for at in range(len(run) - size + 1):
                        source = known.get(run[at : at + size])
                        if source is not None:
                            passage = " ".join(words[start + at : start + at + size])
                            return Refused("contaminated", f"holds {passage!r} of {source}", stage="decontaminate")
        return None


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _known_runs(numbers: list[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Runs of known words that are long enough for a passage, and their starts."""
    start = 0
    for at, number in enumerate([*numbers, -1]):
        if number < 0:
            if at - start >= SHORTEST:
                yield tuple(numbers[start:at]), start
            start = at + 1


def strings_in(value: Any) -> Iterator[str]:
    """Every string among the values of a row, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from strings_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings_in(inner)
