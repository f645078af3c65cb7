"""The sources of a domain as its raw asset pinned them: routing, reasoning, decontamination, domains that files name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from prep_assets.config.family import Chat, Domain, Family, can_name_a_domain, faults
from prep_assets.data.blocks import Block
from prep_assets.data.files import Pin, SourceFile, find, find_on_hub, is_hub, record_id, verify_pins
from prep_assets.data.read import read_blocks
from prep_assets.data.tables import Cut
from prep_assets.errors import ConfigError, PrepAssetsError, Refused, SourceError, SourceUnavailable, nearest
from prep_assets.pipeline.workspace import Workspace, build_command, keep
from prep_assets.samples import Record
from prep_assets.stores.guards import Guards, load_json
from prep_assets.stores.manifest import digest
from prep_assets.stores.published import open_published
from prep_assets.stores.version_folders import Published
from prep_assets.text.render import InlineReasoning
from prep_assets.workers.pool import require_memory

# A domain's source files as its raw asset pinned them.

SOURCES = "sources.json"
BLOCKS = "blocks.json"
"""Hashes of the files' blocks, so that a part of a file can be proven to be what was pinned."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A domain's source files, and the benchmarks it must not hold, as its raw asset pinned them, checked to be unchanged."""

    files: tuple[SourceFile, ...]
    test_files: tuple[SourceFile, ...]
    rows: int
    content_hash: str
    benchmarks: tuple[SourceFile, ...] = ()
    cuts: tuple[tuple[Cut, ...], ...] = ()
    """Where each file can be cut, files to train on first."""

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
        StoreError: the raw asset has no store.
        SourceError: a file changed since; the message says which and how to go on.
    """
    family = workspace.family(kind)
    domain, remedy = domain_of(family, name), build_command(asset, name)
    raw = open_published(workspace.stores, asset, name, remedy=remedy)
    files, test_files = workspace.files(domain), workspace.test_files(domain)
    listed, blocks = read_sources(raw), read_hashes(raw)
    for found, which in ((files, "files"), (test_files, "test_files")):
        expected = [Pin(entry["name"], entry["size"], entry["sha256"], blocks[which][entry["name"]], "") for entry in listed[which]]
        current = {pin.name: pin for pin in workspace.pins(found)}
        pins = [current[pin.name] if pin.name in current and current[pin.name].identity == pin.identity else pin for pin in expected]
        try:
            verify_pins(found, pins)
        except SourceError as error:
            raise SourceError(f"{asset}[{name}]: {error}:\n  {remedy}") from error
    if (found_images := images_pinned(workspace, domain).get("images")) != (expected_images := listed.get("images")):
        raise SourceError(
            f"{asset}[{name}]: the images in {workspace.image_folder(domain)} changed since they were pinned: expected {expected_images}, "
            f"found {found_images}. Pin them again, or restore the old ones:\n  {remedy}"
        )
    if benchmarks_pinned(workspace, family).get("benchmarks") != listed.get("benchmarks"):
        raise SourceError(f"{asset}[{name}]: the benchmarks of decontaminate changed since they were pinned. Pin them again:\n  {remedy}")
    entries = [entry for which in ("files", "test_files") for entry in listed[which]]
    marked = tuple(tuple(map(tuple, entry.get("cuts", ()))) for entry in entries)
    rows, sound = sum(entry["rows"] for entry in entries), not raw.manifest.counts["refused"]
    return Pinned(
        proven(files, blocks["files"], remedy, sound),
        proven(test_files, blocks["test_files"], remedy, sound),
        rows,
        raw.manifest.content_hash,
        proven(benchmarks := workspace.benchmarks(family), {pin.name: pin.blocks for pin in workspace.pins(benchmarks)}, remedy),
        marked,
    )


def proven(files: Iterable[SourceFile], blocks: Mapping[str, str], remedy: str, sound: bool = False) -> tuple[SourceFile, ...]:
    """Files that are compared, while they are read, with what they held when they were pinned.

    Args:
        sound: no row of them was refused then.
    """
    return tuple(replace(file, blocks=blocks[file.name], remedy=remedy, sound=sound) for file in files)


def read_sources(raw: Published, name: str = SOURCES) -> Mapping[str, Any]:
    """The content of a raw store."""
    loaded: Mapping[str, Any] = load_json(raw.directory / name, Guards())
    return loaded


def read_hashes(raw: Published) -> Mapping[str, Mapping[str, str]]:
    """Hashes of the blocks of the files that a raw store pinned, by name: of those to train on (``files``) and of ``test_files``."""
    return read_sources(raw, BLOCKS)


def identities(workspace: Workspace, files: tuple[SourceFile, ...]) -> list[dict[str, str | int]]:
    """Name, size and hash of each file."""
    return [pin.identity for pin in workspace.pins(files)]


def images_pinned(workspace: Workspace, domain: Domain) -> dict[str, Any]:
    """What the folder of images holds. It is pinned with the files, so another image gives other stores."""
    pin = workspace.image_pin(domain)
    return {} if pin is None else {"images": pin}


def benchmarks_pinned(workspace: Workspace, family: Family) -> dict[str, Any]:
    """What benchmarks hold and how long a passage of them is. They are pinned with the files, so another benchmark gives other stores."""
    files = workspace.benchmarks(family)
    return {"benchmarks": {"files": identities(workspace, files), "words": family.decontaminate.words}} if files else {}


# Routing: one source that holds several domains, told apart by a field of each row.
#
# Every domain that names the same `domain_key` takes the rows whose value is its own (`domain_value`, or its name). A value that no domain of the same file
# declares stops the build, so that no row is lost between them; and no two of them take the same rows.

MISSING = "(missing)"


@dataclass(slots=True)
class Router:
    """Picks the rows of one domain.

    Attributes:
        key: the field that tells domains apart; `None` where a source has one domain only.
        value: what it holds in this domain's rows.
        declared: address of a file → values that domains take which read it as this one does, to train on or held out.
        others: how many rows hold each value that no domain takes.
    """

    key: str | None
    value: str
    declared: Mapping[str, frozenset[str]] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)

    def taken(self, file: SourceFile) -> frozenset[str]:
        """Values that some domain takes of a file."""
        return self.declared.get(file.url, frozenset({self.value}))

    def picked(self, file: SourceFile, blocks: Iterator[Block]) -> Iterator[Block]:
        """The blocks of a file with the rows that are this domain's. Rows that cannot be read belong to every domain of their file."""
        return blocks if self.key is None else map(partial(self._pick, self.taken(file), self.key), blocks)

    def _pick(self, taken: frozenset[str], key: str, block: Block) -> Block:
        values = [value_of(record.payload, key) for record in block.records]
        self.others.update(value for value in values if value not in taken)
        return replace(block, records=[record for record, value in zip(block.records, values, strict=True) if value == self.value])

    def check(self) -> None:
        """Stop where rows belong to no domain.

        Raises:
            SourceError: names the values, how many rows hold each, and what to declare.
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
    peers = {label: other for label, other in family.domains.items() if other.domain_key == domain.domain_key}
    read = {
        label: {"train": addresses(workspace, other.files), "test": addresses(workspace, other.test_files)}
        for label, other in peers.items()
    }
    values = {label: other.value(label) for label, other in peers.items()}
    _refuse_claimed_twice(name, domain.domain_key, values, {label: roles["train"] | roles["test"] for label, roles in read.items()})
    declared: dict[str, frozenset[str]] = {}
    for role, urls in read[name].items():
        for url in urls:
            taken = frozenset(values[label] for label in peers if url in read[label][role])
            # a file that is read in both roles loses a row in the role in which no domain takes it
            declared[url] = declared.get(url, taken) & taken
    return Router(domain.domain_key, values[name], declared)


def addresses(workspace: Workspace, patterns: Sequence[str]) -> frozenset[str]:
    """Where the files behind patterns are; a pattern without a file has none."""
    found: set[str] = set()
    for pattern in patterns:
        try:
            found.update(one.url for one in (find_on_hub(pattern) if is_hub(pattern) else find(pattern, workspace.configs.absolute())))
        except SourceUnavailable:
            raise  # what is not reached may be there, and then it has rows of these files
        except SourceError:
            continue  # missing files stop the build of the domain that names them, and no other
    return frozenset(found)


def _refuse_claimed_twice(name: str, key: str, values: Mapping[str, str], read: Mapping[str, frozenset[str]]) -> None:
    for other, value in values.items():
        shared = sorted(read[name] & read[other])
        if other != name and value == values[name] and shared:
            first, second = sorted((name, other))
            raise ConfigError(
                f"domains {first} and {second} both take the rows of {shared[0]} in which {key!r} is {value!r}. Leave one of them out, give "
                "one another domain_value, or tell the rows apart with `where` alone"
            )


def value_of(payload: Mapping[str, Any], key: str) -> str:
    """What a row holds in the field that tells domains apart, as text."""
    value = payload.get(key)
    return MISSING if value is None else str(value)


# What the configuration says about reasoning in the text of answers.


def inline_reasoning(workspace: Workspace, family: Chat) -> InlineReasoning:
    """How a family reads it before its template renders."""
    return InlineReasoning(family.reasoning, family.reasoning_tags, workspace.template(family).shows_thinking)


def unrendered_reasoning(family: Chat) -> InlineReasoning:
    """How a family reads it for rows that a trainer renders: a block stays in the text, which every trainer's template takes."""
    return InlineReasoning(family.reasoning, family.reasoning_tags, shown=False)


# Decontamination: a record that holds a passage of a benchmark is refused, so that no test set is trained on.
#
# A passage is a run of `words` words, compared without case, punctuation and white space. A benchmark's text of fewer words, but at least `SHORTEST`, counts
# as one passage. Thirteen words is GPT-3's choice (Brown et al., 2020, appendix C).

SHORTEST = 8
"""Fewest words of a passage; shorter texts are common property."""
_PASSAGE = 200
"""Bytes of a passage in memory, beside 8 for each word."""
_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class Benchmarks:
    """Passages of benchmarks.

    Attributes:
        words: length of a passage.
        numbers: word → its number; words that no benchmark has are unknown, and no passage spans them.
        passages: length → the passages of that length, as numbers, and the record each is from.
    """

    words: int
    numbers: dict[str, int] = field(default_factory=dict)
    passages: dict[int, dict[tuple[int, ...], str]] = field(default_factory=dict)

    @classmethod
    def read(cls, files: Iterable[SourceFile], words: int) -> Benchmarks:
        """All strings of all rows of benchmark files, in any format that sources may have."""
        found = cls(words)
        for number, file in enumerate(files):
            for block in read_blocks(file, number):
                found._require_memory()
                for record in block.records:
                    for text in strings_in(record.payload):
                        found._add(text, record_id(file, record.row))
        return found

    def _require_memory(self) -> None:
        """Raises:
        ConfigError: the passages so far leave no room for more.
        """
        needed = sum((_PASSAGE + 8 * size) * len(known) for size, known in self.passages.items())
        count = sum(map(len, self.passages.values()))
        require_memory(2 * needed, f"the {count:,} passages of benchmarks so far, and as many more,", "Give `decontaminate` fewer files")

    def _add(self, text: str, source: str) -> None:
        numbered = tuple(self.numbers.setdefault(word, len(self.numbers)) for word in _words(text))
        size = min(self.words, len(numbered))
        if size >= SHORTEST:
            known = self.passages.setdefault(size, {})
            for start in range(len(numbered) - size + 1):
                known.setdefault(numbered[start : start + size], source)

    def check(self, payload: Mapping[str, Any]) -> None:
        """Refuse a row that holds a passage.

        Raises:
            Refused: stage ``decontaminate``; the detail has the passage and where it is from.
        """
        for text in strings_in(payload):
            words = _words(text)
            for run, start in _known_runs([self.numbers.get(word, -1) for word in words]):
                for size, known in self.passages.items():
                    for at in range(len(run) - size + 1):
                        source = known.get(run[at : at + size])
                        if source is not None:
                            passage = " ".join(words[start + at : start + at + size])
                            raise Refused("contaminated", f"holds {passage!r} of {source}", stage="decontaminate")


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _known_runs(numbers: list[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Each run of known words that may hold a passage, and where it starts."""
    start = 0
    for at, number in enumerate([*numbers, -1]):
        if number < 0:
            if at - start >= SHORTEST:
                yield tuple(numbers[start:at]), start
            start = at + 1


def strings_in(value: Any) -> Iterator[str]:
    """Every string among the values of a row, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from strings_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings_in(inner)


# ``domains: auto``: a domain for each value of `domain_key`, instead of the entry that says so.
#
# A domain that was found equals one that is written by hand with that `domain_value`: its stores have the same bytes.

F = TypeVar("F", bound=Family)
DEFAULT = "__default__"
"""The domain of rows that hold nothing there, as AstrAI calls it."""
MADE = {"domains": None, "max_domains": Domain.model_fields["max_domains"].default}
LONGEST = 1000
"""Characters of a value that names a domain."""


def with_found_domains(workspace: Workspace, family: F, where: str) -> F:
    """A family that finds domains, with those that its files name. A workspace that does not look takes what was found last, as far as that
    means something: else the family stays as it is, and whoever looks says what is wrong.

    Raises:
        ConfigError: values that cannot be told apart or are too many, or options that name an unknown domain; begins with `where`.
        SourceUnavailable: a file does not answer, and was never looked at.
    """
    try:
        return _resolved(workspace, family, where)
    except PrepAssetsError:
        if workspace.looks:
            raise
        return family


def _resolved(workspace: Workspace, family: F, where: str) -> F:
    found: dict[str, Domain] = {}
    for label, domain in family.domains.items():
        try:
            for name, each in _made(workspace, family, domain, label) if domain.domains else [(label, domain)]:
                _refuse_same_name(name, found)
                found[name] = each
        except SourceUnavailable:
            raise
        except PrepAssetsError as error:
            raise ConfigError(f"{where}:\n  domains.{label}: {error}") from error
    if not found:
        raise ConfigError(f"{where}:\n  domains: no file has a row that can be read")
    made = family.model_copy(update={"domains": found})
    if not made.finds_domains and (wrong := list(faults(made))):
        raise ConfigError("\n".join([f"{where}:", *(f"  {each}" for each in wrong)]))
    return made


def _made(workspace: Workspace, family: Family, domain: Domain, label: str) -> Iterator[tuple[str, Domain]]:
    """Name and domain of each value."""
    others = {name: each for name, each in family.domains.items() if not each.domains and each.domain_key == domain.domain_key}
    read = addresses(workspace, (*domain.files, *domain.test_files)) if others else frozenset()
    taken = {each.value(name) for name, each in others.items() if read & addresses(workspace, (*each.files, *each.test_files))}
    files = values_of(workspace, domain, taken)
    if files is None:
        yield label, domain
        return
    counts = sum((Counter(each) for each in files), Counter[str]())
    refuse_too_many(domain, counts, taken)
    for value in sorted(counts.keys() - taken):
        yield name_of(value), domain.model_copy(update={**MADE, "domain_value": value})


def name_of(value: str) -> str:
    """The name of a value's domain: the value, or what of it may stand in a name, with a hash of it."""
    if value == MISSING:
        return DEFAULT
    if can_name_a_domain(value):
        return value
    kept = re.sub(r"[^A-Za-z0-9]+", "-", value)[:60].strip("-") or "domain"
    return f"{kept}-{sha256(value.encode()).hexdigest()[:8]}"


def _refuse_same_name(name: str, found: Mapping[str, Domain]) -> None:
    same = next((other for other in found if other.casefold() == name.casefold()), None)
    if same is not None:
        raise ConfigError(
            f"the domain {name!r} is there already, as {same!r}; names must differ in more than capital letters, because they are folders. Write one "
            "of the two by hand under another name, with the same files and domain_key, and domain_value: the value as the rows have it"
        )


Counts = Mapping[str, int]
"""Value → how many rows hold it."""


def values_of(workspace: Workspace, domain: Domain, taken: Collection[str]) -> list[Counts] | None:
    """The values in each file. Where files cannot be read, or the workspace does not look at them: those that were found
    last; `None` where they never were.

    Args:
        taken: values that do not count among `max_domains`.

    Raises:
        ConfigError: more values than `max_domains`, or a value that can name no domain.
        SourceError: a file cannot be read, and nothing was found before.
    """
    known = _known(memory := _memory(workspace, domain))
    if not workspace.looks:
        return None if known is None else [counts for _, counts in known.values()]
    try:
        found = _look(workspace, domain, known or {}, taken)
    except SourceError:
        if known is None:
            raise
        found = known  # the build of a domain says what is wrong with its files
    if found != known:
        keep(memory, found)
    return [counts for _, counts in found.values()]


def _memory(workspace: Workspace, domain: Domain) -> Path:
    read = [str(workspace.configs.absolute()), domain.files, domain.test_files, domain.format, domain.txt, domain.domain_key]
    return workspace.stores / ".hashes" / f"values-{digest(read)[:20]}.json"


def _known(memory: Path) -> dict[str, tuple[str, dict[str, int]]] | None:
    """What was found last: hash of a file's address, which may hold a password or a signature → hash of its content, and its values."""
    try:
        return msgspec.json.decode(memory.read_bytes(), type=dict[str, tuple[str, dict[str, int]]])
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _look(
    workspace: Workspace, domain: Domain, known: Mapping[str, tuple[str, dict[str, int]]], taken: Collection[str]
) -> dict[str, tuple[str, dict[str, int]]]:
    found = {}
    for files in (workspace.files(domain), workspace.test_files(domain)):
        for file, pin in zip(files, workspace.pins(files), strict=True):
            sha256, counts = known.get(address := digest(file.url), ("", {}))
            found[address] = (pin.sha256, counts if sha256 == pin.sha256 else _count(workspace, domain, file, pin, taken))
    return found


def _count(workspace: Workspace, domain: Domain, file: SourceFile, pin: Pin, taken: Collection[str]) -> dict[str, int]:
    key, counts = str(domain.domain_key), Counter[str]()
    for block in read_blocks(replace(file, blocks=pin.blocks), 0, txt=domain.txt):
        counts.update(_value(file, record, key) for record in block.records)
        refuse_too_many(domain, counts, taken)
        if workspace.progress:
            workspace.progress(f"look for domains in {file.name}", block.bytes_read, file.size)
    return dict(sorted(counts.items()))


def _value(file: SourceFile, record: Record, key: str) -> str:
    """Raises:
    ConfigError: the row holds something that can name no domain.
    """
    given, value = record.payload.get(key), value_of(record.payload, key)
    if isinstance(given, list | Mapping):
        wrong = f"a list or an object, {value!r:.80}"
    elif given == MISSING:
        wrong = f"the text {MISSING!r}, which is what rows without a value are called"
    elif len(value) > LONGEST:
        wrong = f"{len(value):,} characters, {value!r:.80}…"
    else:
        return value
    raise ConfigError(f"{key!r} of {record_id(file, record.row)} holds {wrong}. Name another field, or fix the row")


def refuse_too_many(domain: Domain, counts: Counts, taken: Collection[str]) -> None:
    """Stop where there are more values than `max_domains`.

    Raises:
        ConfigError: names the most frequent ones.
    """
    most = Counter({value: count for value, count in counts.items() if value not in taken})
    if len(most) > domain.max_domains:
        shown = ", ".join(f"{value!r:.80} ({count:,} rows)" for value, count in most.most_common(10))
        raise ConfigError(
            f"{domain.domain_key!r} holds {len(most):,} values or more, and max_domains is {domain.max_domains:,}. The most frequent so far: "
            f"{shown}. Name a field that tells fewer domains apart, or raise max_domains"
        )
