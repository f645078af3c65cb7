"""A domain's pinned source files: routing, inline reasoning, decontamination, and domains found in the data."""

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
        StoreError: the raw asset has no store.
        SourceError: a file changed since; the message names it and the remedy.
    """
    family = workspace.family(kind)
    domain, remedy = domain_of(family, name), build_command(asset, name)
    raw = open_published(workspace.stores, asset, name, remedy=remedy)
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
            f"{asset}[{name}]: the images in {workspace.image_folder(domain)} changed since they were pinned: expected {expected_images}, "
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
    pin = workspace.image_pin(domain)
    return {} if pin is None else {"images": pin}


def benchmarks_pinned(workspace: Workspace, family: Family) -> dict[str, Any]:
    """The pins of benchmarks and the length of a passage, if any. They are part of the recipe: another benchmark gives another store."""
    files = workspace.benchmarks(family)
    return {"benchmarks": {"files": identities(workspace, files), "words": family.decontaminate.words}} if files else {}


# Routing: several domains in one source, told apart by a field of the rows.
#
# Every domain with the same `domain_key` takes the rows with its value (`domain_value`, or its name). A value that no domain of the file declares stops the
# build, so that no row is lost, and no two domains take the same rows.

MISSING = "(missing)"


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


def addresses(workspace: Workspace, patterns: Sequence[str]) -> frozenset[str]:
    """The addresses of the files that match patterns; a pattern may match none."""
    urls: set[str] = set()
    for pattern in patterns:
        try:
            urls.update(file.url for file in (find_on_hub(pattern) if is_hub(pattern) else find(pattern, workspace.configs.absolute())))
        except SourceUnavailable:
            raise  # an unreachable file may exist, and share rows
        except SourceError:
            continue  # missing files stop the build of the domain that names them, and no other
    return frozenset(urls)


def _check_no_shared_rows(name: str, key: str, values: Mapping[str, str], read: Mapping[str, frozenset[str]]) -> None:
    for other_name, value in values.items():
        shared = sorted(read[name] & read[other_name])
        if other_name != name and value == values[name] and shared:
            first, second = sorted((name, other_name))
            raise ConfigError(
                f"domains {first} and {second} both take the rows of {shared[0]} in which {key!r} is {value!r}. Leave one of them out, give "
                "one another domain_value, or tell the rows apart with `where` alone"
            )


def value_of(payload: Mapping[str, Any], key: str) -> str:
    """The value of a row's `domain_key` field as text."""
    value = payload.get(key)
    return MISSING if value is None else str(value)


# Reasoning in the text of answers, as configured.


def inline_reasoning(workspace: Workspace, family: Chat) -> InlineReasoning:
    """How a family reads reasoning in answers before its template renders them."""
    return InlineReasoning(family.reasoning, family.reasoning_tags, workspace.template(family).form.shows_reasoning)


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


# ``domains: auto``: the entry is replaced by one domain per value of `domain_key`.
#
# A found domain equals one written by hand with that `domain_value`: its stores have the same bytes.

F = TypeVar("F", bound=Family)
DEFAULT = "__default__"
"""The domain of rows without a value, as AstrAI calls it."""
REPLACED = {"domains": None, "max_domains": Domain.model_fields["max_domains"].default}
LONGEST = 1000
"""Most characters of a value that names a domain."""


def with_found_domains(workspace: Workspace, family: F, where: str) -> F:
    """Replace the ``auto`` domains of a family by those found in its files. A workspace that does not look at files uses the last values found; if that
    fails, the family stays unresolved, and the next workspace that looks raises the error.

    Raises:
        ConfigError: values that cannot be told apart or are too many, or options that name an unknown domain; begins with `where`.
        SourceUnavailable: a file is unreachable, and its values are not cached.
    """
    try:
        return _resolved(workspace, family, where)
    except PrepAssetsError:
        if workspace.looks:
            raise
        return family


def _resolved(workspace: Workspace, family: F, where: str) -> F:
    domains: dict[str, Domain] = {}
    for label, domain in family.domains.items():
        try:
            for name, member in _domains_by_value(workspace, family, domain, label) if domain.domains else [(label, domain)]:
                _check_name_is_free(name, domains)
                domains[name] = member
        except SourceUnavailable:
            raise
        except PrepAssetsError as error:
            raise ConfigError(f"{where}:\n  domains.{label}: {error}") from error
    if not domains:
        raise ConfigError(f"{where}:\n  domains: no file has a row that can be read")
    resolved = family.model_copy(update={"domains": domains})
    if not resolved.finds_domains and (wrong := list(faults(resolved))):
        raise ConfigError("\n".join([f"{where}:", *(f"  {fault}" for fault in wrong)]))
    return resolved


def _domains_by_value(workspace: Workspace, family: Family, domain: Domain, label: str) -> Iterator[tuple[str, Domain]]:
    """Yield name and domain for every value."""
    written_domains = {name: other for name, other in family.domains.items() if not other.domains and other.domain_key == domain.domain_key}
    read = addresses(workspace, (*domain.files, *domain.test_files)) if written_domains else frozenset()
    taken = {other.value(name) for name, other in written_domains.items() if read & addresses(workspace, (*other.files, *other.test_files))}
    files = values_of(workspace, domain, taken)
    if files is None:
        yield label, domain
        return
    counts = sum((Counter(file_counts) for file_counts in files), Counter[str]())
    check_value_count(domain, counts, taken)
    for value in sorted(counts.keys() - taken):
        yield name_of(value), domain.model_copy(update={**REPLACED, "domain_value": value})


def name_of(value: str) -> str:
    """The name of a value's domain: the value itself, or its allowed characters and a hash."""
    if value == MISSING:
        return DEFAULT
    if can_name_a_domain(value):
        return value
    stem = re.sub(r"[^A-Za-z0-9]+", "-", value)[:60].strip("-") or "domain"
    return f"{stem}-{sha256(value.encode()).hexdigest()[:8]}"


def _check_name_is_free(name: str, domains: Mapping[str, Domain]) -> None:
    taken_name = next((existing for existing in domains if existing.casefold() == name.casefold()), None)
    if taken_name is not None:
        raise ConfigError(
            f"the domain {name!r} is there already, as {taken_name!r}; names must differ in more than capital letters, because they are folders. Write one "
            "of the two by hand under another name, with the same files and domain_key, and domain_value: the value as the rows have it"
        )


Counts = Mapping[str, int]
"""Value → how many rows hold it."""


def values_of(workspace: Workspace, domain: Domain, taken: Collection[str]) -> list[Counts] | None:
    """The value counts of every file. If files cannot be read, or the workspace does not look at them, the cached ones; `None` if there are none.

    Args:
        taken: values that do not count towards `max_domains`.

    Raises:
        ConfigError: more values than `max_domains`, or a value that cannot name a domain.
        SourceError: a file cannot be read, and nothing is cached.
    """
    remembered = _load_values(path := _values_path(workspace, domain))
    if not workspace.looks:
        return None if remembered is None else [counts for _, counts in remembered.values()]
    try:
        current = _read_values(workspace, domain, remembered or {}, taken)
    except SourceError:
        if remembered is None:
            raise
        current = remembered  # the build of a domain says what is wrong with its files
    if current != remembered:
        keep(path, current)
    return [counts for _, counts in current.values()]


def _values_path(workspace: Workspace, domain: Domain) -> Path:
    read = [str(workspace.configs.absolute()), domain.files, domain.test_files, domain.format, domain.txt, domain.domain_key]
    return workspace.stores / ".hashes" / f"values-{digest(read)[:20]}.json"


def _load_values(path: Path) -> dict[str, tuple[str, dict[str, int]]] | None:
    """The cached values: hash of a file's address → hash of its content, and value counts. Addresses are hashed because they may hold secrets."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, tuple[str, dict[str, int]]])
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _read_values(
    workspace: Workspace, domain: Domain, known: Mapping[str, tuple[str, dict[str, int]]], taken: Collection[str]
) -> dict[str, tuple[str, dict[str, int]]]:
    values = {}
    for files in (workspace.files(domain), workspace.test_files(domain)):
        for file, pin in zip(files, workspace.pins(files), strict=True):
            sha256, counts = known.get(address := digest(file.url), ("", {}))
            values[address] = (pin.sha256, counts if sha256 == pin.sha256 else _count_values(workspace, domain, file, pin, taken))
    return values


def _count_values(workspace: Workspace, domain: Domain, file: SourceFile, pin: Pin, taken: Collection[str]) -> dict[str, int]:
    key, counts = str(domain.domain_key), Counter[str]()
    for block in read_blocks(replace(file, blocks=pin.blocks), 0, txt=domain.txt):
        counts.update(_domain_value(file, record, key) for record in block.records)
        check_value_count(domain, counts, taken)
        if workspace.progress:
            workspace.progress(f"look for domains in {file.name}", block.bytes_read, file.size)
    return dict(sorted(counts.items()))


def _domain_value(file: SourceFile, record: Record, key: str) -> str:
    """Raises:
    ConfigError: the row's value cannot name a domain.
    """
    content, value = record.payload.get(key), value_of(record.payload, key)
    if isinstance(content, list | Mapping):
        wrong = f"a list or an object, {value!r:.80}"
    elif content == MISSING:
        wrong = f"the text {MISSING!r}, which is what rows without a value are called"
    elif len(value) > LONGEST:
        wrong = f"{len(value):,} characters, {value!r:.80}…"
    else:
        return value
    raise ConfigError(f"{key!r} of {record_id(file, record.row)} holds {wrong}. Name another field, or fix the row")


def check_value_count(domain: Domain, counts: Counts, taken: Collection[str]) -> None:
    """Raise if there are more values than `max_domains`.

    Raises:
        ConfigError: names the most frequent values.
    """
    most = Counter({value: count for value, count in counts.items() if value not in taken})
    if len(most) > domain.max_domains:
        shown = ", ".join(f"{value!r:.80} ({count:,} rows)" for value, count in most.most_common(10))
        raise ConfigError(
            f"{domain.domain_key!r} holds {len(most):,} values or more, and max_domains is {domain.max_domains:,}. The most frequent so far: "
            f"{shown}. Name a field that tells fewer domains apart, or raise max_domains"
        )
