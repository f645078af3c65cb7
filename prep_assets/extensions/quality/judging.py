"""Judge the examples of a domain by quality steps: once, for all that is made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, msgpack, structs

from prep_assets.config.family import Domain, Family
from prep_assets.config.models import FAMILIES, family_name
from prep_assets.data import tables
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import ConfigError
from prep_assets.extensions.quality.apart import end_process
from prep_assets.extensions.quality.examined import (
    WITH_SOLUTIONS,
    examples_of,
    is_held_out,
    sides_recipe,
    solutions_of,
    source_to_judge,
)
from prep_assets.extensions.quality.steps import (
    CLUSTER,
    Configured,
    Examples,
    Judged,
    Step,
    configured_steps,
    corrupted_examples,
    tried_on_itself,
)
from prep_assets.extensions.rl.schemas import MARK
from prep_assets.pipeline import tokens
from prep_assets.pipeline.asset import Store, Target, holds_out
from prep_assets.pipeline.examples import Item, Reading, Source, converter, reading_recipe
from prep_assets.pipeline.sources import domain_of
from prep_assets.pipeline.verdicts import FOUND, VERDICTS, write_table
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Example, Prompt, Sample
from prep_assets.schemas.reader import apply
from prep_assets.stores.arrays import save_array
from prep_assets.stores.guards import Guards, load_array
from prep_assets.stores.published import Draft
from prep_assets.stores.verification import WrittenFile
from prep_assets.stores.version_folders import Published

_SHARD = "verdicts.msgpack"
"""Of the file in the folder of a shard."""
LEFT = ".left.npy"
"""End of the names of files with what later domains are compared with."""
MOST_SHARES = 100
"""Different texts of a note whose shares are metrics."""
BOTH_SIDES = "alike_across_splits"
"""Why an example to train on is dropped that is in a cluster with a held-out one."""


def steps_of(options: Family, name: str) -> list[Configured]:
    """The steps that judge a domain.

    Raises:
        ConfigError: a step or an option that does not exist, or does not fit the domain; or examples that are alike may stand on two sides of a split.
    """
    steps = configured_steps(options.quality.steps, options.form_of(name))
    for step in steps:
        if step.across and step.clusters and step.action == "note" and len(options.domains) > 1 and holds_out(options, options.domains):
            raise ConfigError(
                f"quality step {step.name!r} with `across: true` and `action: note` keeps examples of two domains that are alike, and the family "
                "holds examples out, so one of them may be trained on and the other tested. Use `action: drop`, or leave `across` out"
            )
    return steps


def domains_before(family: str, workspace: Workspace, name: str) -> tuple[str, ...]:
    """The domains that a domain is compared with: those before it in the configuration, if a step looks at them and judges the same kind of example."""
    options = workspace.family(FAMILIES[family])
    if not any(step.across for step in steps_of(options, name)):
        return ()
    names, form = list(options.domains), options.form_of(name)
    return tuple(before for before in names[: names.index(name)] if options.form_of(before) is form)


def quality_recipe(family: str, workspace: Workspace, name: str) -> dict[str, Any]:
    """What the verdicts on a domain depend on, apart from its sources."""
    options = workspace.family(FAMILIES[family])
    return {
        "domain": name,
        **reading_recipe(domain_of(options, name), attended=options.form_of(name) is Sample),
        "deduplicate": options.preprocessing.deduplicate,
        "limit": options.most_rows,
        "steps": [[step.name, dict(step.recipe)] for step in steps_of(options, name)],
        **_left_before(family, workspace, name),
        **_golds_known(family, workspace, name),
        **({"sides": sides_recipe(options)} if _compares_sides(options, name) else {}),
        **({"columns": [FOUND]} if any(step.action != "drop" for step in steps_of(options, name)) else {}),
    }


def _compares_sides(options: Family, name: str) -> bool:
    """Whether examples that stay may be alike, and some of them are held out."""
    return holds_out(options, [name]) and any(step.clusters and step.action == "note" for step in steps_of(options, name))


def domains_with_golds(workspace: Workspace, options: Family, name: str) -> list[str]:
    """The domains of prompts whose golds the steps of a domain judge by.

    Raises:
        ConfigError: a step needs golds, and there are no prompts.
    """
    if not (by_golds := [step.name for step in steps_of(options, name) if step.golds]):
        return []
    if not workspace.has(family := family_with_golds()):
        raise ConfigError(
            f"quality step {by_golds[0]!r} judges by the golds of the family {family}, and there is no {family}.yaml. Leave it out, or write one"
        )
    prompts = workspace.family(FAMILIES[family])
    return sorted(domain for domain in prompts.domains if prompts.form_of(domain) is Prompt)


def family_with_golds() -> str:
    """The family whose rows are prompts with golds."""
    return next(name for name, model in FAMILIES.items() if model.form_of_rows is Prompt)


def _golds_known(family: str, workspace: Workspace, name: str) -> dict[str, Any]:
    """The golds that steps judge by: contents of the sources of rl, and how they are read."""
    domains = domains_with_golds(workspace, workspace.family(FAMILIES[family]), name)
    known = family_with_golds() if domains else ""
    golds = {
        domain: [workspace.content(f"{known}_raw", domain), reading_recipe(workspace.family(FAMILIES[known]).domains[domain])]
        for domain in domains
    }
    return {"golds": golds} if golds else {}


def _left_before(family: str, workspace: Workspace, name: str) -> dict[str, Any]:
    """The hashes of what earlier domains left to be compared with."""
    before = {}
    for domain in domains_before(family, workspace, name):
        published = workspace.published(f"{family}_quality", domain)
        files = published.manifest.files if published else {}
        before[domain] = {file: entry["sha256"] for file, entry in files.items() if file.endswith(LEFT)}
    return {"before": before} if before else {}


class Block(Struct, frozen=True):
    """What the steps say of some consecutive examples, before it is put together with what they say of those before.

    Attributes:
        count: number of examples.
        places: file and row of each.
        held_out: which of them are held out; empty where examples that are alike may stand on both sides.
        judged: what each step says.
    """

    count: int
    places: list[tuple[int, int]]
    held_out: list[bool]
    judged: list[Judged]


_Shard = tuple[list[Block], list[list[tuple[str, bytes]]]]
"""The blocks of a shard, and what each step notes: dtype and bytes."""


class Verdicts:
    """What the steps say of the examples of a domain, gathered block by block.

    Attributes:
        count: examples so far.
        dropped: number of an example → why it is dropped, by the first step that drops it.
        noted: number of an example → what steps found that note or block: ``step/reason (action): detail``.
        found: step, action and reason → how many examples.
        blocking: step and reason of what blocks → number of the first example and the detail.
        notes: step and name of a note → what it says of each example.
    """

    def __init__(self, steps: Sequence[Configured]) -> None:
        end_process()  # the next one has code of now, and no step goes by it
        self._steps = [(step, step.make()) for step in steps]
        self._places: list[npt.NDArray[np.int64]] = []
        self._held_out: list[bool] = []
        self.notes: dict[str, list[Any]] = {}
        self.count = 0
        self.dropped: dict[int, tuple[str, str]] = {}
        self.noted: dict[int, list[str]] = {}
        self.found: Counter[tuple[str, str, str]] = Counter()
        self.blocking: dict[str, tuple[int, str]] = {}

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """File and row of every example: int64[2, n]."""
        return np.concatenate([np.zeros((2, 0), np.int64), *self._places], axis=1)

    def judged(self, examples: Examples, items: Sequence[Item] = (), held_out: Sequence[bool] = ()) -> Block:
        """Judge the next examples, with their records; see `Block`."""
        places = [(item.record.file, item.record.row) for item in items]
        return Block(len(examples), places, [*held_out], [at_work.judge(examples) for _, at_work in self._steps if len(examples)])

    def add(self, block: Block) -> None:
        """Add what was judged."""
        self._places.append(np.array(block.places, np.int64).reshape(-1, 2).T)
        self._held_out += block.held_out
        for (step, _), judged in zip(self._steps, block.judged, strict=block.count > 0):
            self._take(step, judged, self.count)
        self.count += block.count

    @property
    def in_shards(self) -> bool:
        """Whether a domain can be judged in shards: no step knows golds, or keeps what it does not note."""
        return all(not step.golds and (at_work.noted or type(at_work).finish is Step.finish) for step, at_work in self._steps)

    def of_shard(self, blocks: Sequence[Block]) -> bytes:
        """What the blocks of the next shard of a domain add to the verdicts on those before, see `add_shard`."""
        spools = [[(spool.dtype.str, spool.array().tobytes()) for spool in at_work.noted] for _, at_work in self._steps]
        return msgpack.encode((blocks, spools))

    def add_shard(self, written: bytes) -> None:
        """Add the verdicts on the next shard."""
        blocks, spools = msgpack.decode(written, type=_Shard)
        for block in blocks:
            self.add(block)
        for (_, at_work), of_step in zip(self._steps, spools, strict=True):
            for spool, (dtype, noted) in zip(at_work.noted, of_step, strict=True):
                spool.append(np.frombuffer(noted, dtype))

    def finish(self) -> None:
        """Let the steps judge the domain as a whole."""
        for step, at_work in self._steps:
            judged = at_work.finish(self._kept())
            self._take(step, judged, 0)
            if self._held_out and step.clusters and step.action == "note":
                self._keep_on_one_side(step, np.asarray(judged.notes[CLUSTER], np.int64))

    def _keep_on_one_side(self, step: Configured, cluster: npt.NDArray[np.int64]) -> None:
        """Drop what is to be trained on of each cluster that has a held-out example.

        Args:
            cluster: int64[n], the first member of the cluster of each example; -1 for one that is alone.
        """
        takes_part, held = self._kept() & (cluster >= 0), np.array(self._held_out, bool)
        tested = np.flatnonzero(takes_part & held)
        of_cluster = dict(zip(cluster[tested][::-1].tolist(), tested[::-1].tolist(), strict=True))
        alike = np.flatnonzero(takes_part & ~held & np.isin(cluster, cluster[tested])).tolist()
        details = {number: f"is like example {of_cluster[int(cluster[number])]} of the domain, which is held out" for number in alike}
        self._take(structs.replace(step, action="drop"), Judged({number: (BOTH_SIDES, detail) for number, detail in details.items()}), 0)

    def _kept(self) -> npt.NDArray[np.bool_]:
        kept = np.ones(self.count, bool)
        kept[list(self.dropped)] = False
        return kept

    def look_back(self, domain: str, earlier: Published) -> None:
        """Give the steps what they left of an earlier domain."""
        for step, at_work in self._steps:
            if step.across:
                at_work.after(domain, load_array(earlier.directory / f"{step.name}{LEFT}", Guards()))

    def learn(self, prompts: Sequence[Prompt]) -> None:
        """Give golds to the steps that judge by them."""
        for _, at_work in self._steps:
            at_work.learn(prompts)

    def left(self) -> dict[str, npt.NDArray[np.uint64]]:
        """File name → what the steps leave for later domains."""
        return {f"{step.name}{LEFT}": at_work.leaves(self._kept()) for step, at_work in self._steps if step.across}

    def _take(self, step: Configured, judged: Judged, base: int) -> None:
        for number, (reason, detail) in judged.found.items():
            self.found[step.name, step.action, reason] += 1
            if step.action == "block":
                self.blocking.setdefault(f"{step.name}/{reason}", (base + number, detail))
            if step.action == "drop":
                self.dropped.setdefault(base + number, (reason, f"{detail} ({step.name})"))
            else:
                self.noted.setdefault(base + number, []).append(f"{step.name}/{reason} ({step.action}): {detail}")
        for name, values in judged.notes.items():
            self.notes.setdefault(f"{step.name}.{name}", []).extend(values)

    def shares(self) -> dict[str, float]:
        """Note and text → the share of examples that have it, for notes that are a few texts, such as languages."""
        counted = {name: Counter(values) for name, values in self.notes.items() if values and isinstance(values[0], str)}
        few = {name: sorted(counts.items()) for name, counts in counted.items() if len(counts) <= MOST_SHARES}
        return {f"{name}.{text}": count / self.count for name, counts in few.items() for text, count in counts}

    def table(self) -> Any:
        """All verdicts as a table of Arrow, a row for each example in the order of the sources."""
        import pyarrow as pa

        file, row = self.places
        columns = {"file": pa.array(file.astype(np.int32)), "row": pa.array(row)}
        for part, name in enumerate(("dropped", "detail")):
            columns[name] = pa.array([self.dropped.get(number, (None, None))[part] for number in range(self.count)], pa.string())
        if any(step.action != "drop" for step, _ in self._steps):
            columns[FOUND] = pa.array([self.noted.get(number, []) for number in range(self.count)], pa.list_(pa.string()))
        return pa.table({**columns, **{name: pa.array(values) for name, values in self.notes.items()}})


def as_read(domain: Domain, form: type, examples: Sequence[Example]) -> Examples:
    """Corrupted examples as a build of the domain reads them: through its schema, if that takes notes out of solutions."""
    corrupted = corrupted_examples(examples)
    if domain.schema_name not in WITH_SOLUTIONS or not all(MARK in text for text in corrupted.texts):
        return corrupted
    question, answer = (domain.options.get(key, name) for key, name in (("question_key", "question"), ("answer_key", "answer")))
    rows = [{question: "How many?", answer: text} for text in corrupted.texts]
    convert = converter(domain, form)
    return Examples(corrupted.ids, [apply(convert, row) for row in rows], solutions_of(domain, rows))


def judged_domain(source: Source, payload: Path, *, halved: bool = False) -> Verdicts:
    """Read a domain, and let its steps judge its examples, in shards if there are workers.

    Args:
        payload: of the store that is written.
        halved: whether to judge each half of a block apart.
    """
    family, verdicts = family_name(source.kind), Verdicts(steps_of(source.family, source.name))
    for domain in domains_before(family, source.workspace, source.name):
        verdicts.look_back(domain, source.workspace.built(f"{family}_quality", domain))
    for domain in domains_with_golds(source.workspace, source.family, source.name):
        for examples, _, _ in examples_of(source_to_judge(source.workspace, family_with_golds(), domain).reading(), "read golds of"):
            verdicts.learn([example for example in examples.examples if isinstance(example, Prompt)])
    runner = source.workspace.runner(source.family) if verdicts.in_shards else None
    if runner and runner.elsewhere and not payload.is_relative_to(source.workspace.stores):
        runner = None  # other machines do not see the folder of a check
    shards = source.shards(source.family.cluster.shards) if runner else []
    if runner is None or len(shards) < 2 or sum(shard.size for shard in shards) < tokens.FEWEST * tables.SHARD_BYTES:
        for block in _judged(verdicts, source, source.reading(), halved):
            verdicts.add(block)
    else:
        shards = tokens.shards_without_duplicates(source, runner, shards, payload, again=True)
        work = partial(_judged_shard, source=source.travelling(runner, tokenized=False), halved=halved)
        for result in tokens.shard_results(source.workspace, f"judge {source.name}", runner, shards, work, payload):
            with Guards.of_work(result.folder, result.files).open(result.folder / _SHARD) as file:
                verdicts.add_shard(file.read())
        runner.effort.shards += len(shards)
    verdicts.finish()
    return verdicts


def _judged(verdicts: Verdicts, source: Source, reading: Reading, halved: bool) -> Iterator[Block]:
    compares_sides = _compares_sides(source.family, source.name)
    for examples, items, in_test in examples_of(reading, "judge", halved):
        held_out = [bool(is_held_out(source.family, item, in_test)) for item in items] if compares_sides else ()
        yield verdicts.judged(examples, items, held_out)


def _judged_shard(task: Any, folder: Path, *, source: Source, halved: bool) -> dict[str, int]:
    """The work of one shard."""
    verdicts = Verdicts(steps_of(source.family, source.name))
    blocks = [*_judged(verdicts, source, source.part(task), halved)]
    with WrittenFile(folder / _SHARD) as file:
        file.write(verdicts.of_shard(blocks))
    return {"examples": sum(block.count for block in blocks)}


def write_verdicts(target: Target, quarantine: Quarantine) -> Draft:
    """Judge one domain, and write the verdicts."""
    source = source_to_judge(target.workspace, target.asset.family, target.partition)
    verdicts = judged_domain(source, target.payload)
    write_table(target.payload / VERDICTS, verdicts.table())
    for left, values in verdicts.left().items():
        save_array(target.payload / left, values)
    dropped = Counter(reason for reason, _ in verdicts.dropped.values())
    found = {f"{step}/{reason} ({action})": count for (step, action, reason), count in sorted(verdicts.found.items())}
    counts = {"examples": verdicts.count, "kept": verdicts.count - dropped.total(), "dropped": dropped.total(), "found": found}
    files, places = (*source.sources.files, *source.sources.test_files), verdicts.places
    blocking = {
        reason: f"{files[places[0, number]].name}:{places[1, number]}: {detail}"
        for reason, (number, detail) in sorted(verdicts.blocking.items())
    }
    shares = {f"dropped.{reason}": count / max(1, verdicts.count) for reason, count in sorted(dropped.items())} | verdicts.shares()
    return Draft({**counts, **({"blocking": blocking} if blocking else {})}, shares)


def tried(store: Store) -> list[tuple[str, str, bool, str]]:
    """Each step that has examples which it must find wrong: their reason, its name, and whether it finds them as a build of the domain reads them."""
    read = partial(as_read, domain_of(store.family, store.partition), store.family.form_of(store.partition))
    steps = steps_of(store.family, store.partition)
    trials = ((reason, step.name, found) for step in steps for reason, found in tried_on_itself(step, read))
    return [(reason, name, found, f"finds {reason}" if found else "finds nothing") for reason, name, found in trials]
