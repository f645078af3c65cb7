"""Search the examples of a domain for what is held out: benchmarks, and the test shares of other domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import nsmallest
from itertools import compress
from typing import Any

import numpy as np
import xxhash
from msgspec import Struct

from prep_assets.checks.relations import same_rows
from prep_assets.config.family import Family
from prep_assets.config.models import FAMILIES, Eval
from prep_assets.data.blocks import MISSED
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import SourceError
from prep_assets.extensions.leaks.overlap import RULES, Leak, Passages, finds_planted, recall
from prep_assets.extensions.quality.examined import examples_of, is_held_out, sides_recipe, source_to_judge
from prep_assets.pipeline.asset import Store, Target, holds_out
from prep_assets.pipeline.examples import Source, reading_recipe
from prep_assets.pipeline.sources import domain_of
from prep_assets.pipeline.verdicts import QUALITY, VERDICTS, read_table, write_table
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Sample
from prep_assets.stores.published import Draft
from prep_assets.stores.version_folders import Published

TEXTS, PASSAGES = "texts.parquet", "{}.parquet"
"""Files of `eval_passages`: what is held out, and the passages of it by each rule."""
REASON = "held_out"
SEARCH_VERSION = 5
"""Raised when texts are compared otherwise, so that stores are searched again."""
PROBED = 200
"""Texts of a data set that are looked for in disguise when it is read."""


def drops(workspace: Workspace, kind: type[Family] | None = None) -> bool:
    """Whether examples of a family that hold held-out texts are refused."""
    return kind is not Eval and workspace.has("eval") and workspace.family(Eval).policy == "drop"


# What is held out.


class HeldOut(Struct, frozen=True):
    """A held-out data set: a domain of eval.yaml, or what a domain of another family holds out."""

    family: str
    name: str

    @property
    def label(self) -> str:
        """As reports name it."""
        return f"{self.name} (eval)" if self.family == "eval" else f"held-out {self.family}[{self.name}]"


def held_out_sets(workspace: Workspace) -> list[HeldOut]:
    """Every held-out data set of a workspace."""
    kinds = {family: workspace.family(FAMILIES[family]) for family in families_that_hold_out(workspace)}
    shares = [HeldOut(family, name) for family, kind in kinds.items() for name in sorted(kind.domains) if holds_out(kind, [name])]
    return [*(HeldOut("eval", name) for name in sorted(workspace.family(Eval).domains)), *shares]


def families_that_hold_out(workspace: Workspace) -> list[str]:
    """The families whose held-out shares are searched for."""
    if not workspace.family(Eval).splits:
        return []
    families = ((family, workspace.family(FAMILIES[family])) for family in FAMILIES if family != "eval" and workspace.has(family))
    return [family for family, options in families if holds_out(options, options.domains)]


# `eval_passages`.


def passages_recipe(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the passages depend on."""
    options, sets = workspace.family(Eval), []
    for held in held_out_sets(workspace):
        family = workspace.family(FAMILIES[held.family])
        shares = {} if held.family == "eval" else sides_recipe(family)
        content = workspace.content(f"{held.family}_raw", held.name)
        sets.append([held.family, held.name, content, reading_recipe(domain_of(family, held.name)), shares])
    return {"rules": list(options.rules), "sets": sets, "probes": 1, "search": SEARCH_VERSION}


class Texts:
    """All held-out texts of a workspace, by rule.

    Attributes:
        sets: the data sets.
        places: of each text, the number of its data set, its file and its row.
        unsure: examples of which nobody can tell here whether they are held out.
        probes: of each data set, the digest, number and text of those that are looked for in disguise.
        rejected: by label of a data set of eval.yaml, its rows that are no example, so that nothing of them can be found.

    Raises:
        SourceError: a data set of eval.yaml that holds no text.
    """

    def __init__(self, workspace: Workspace, quarantine: Quarantine) -> None:
        self.sets, self.unsure, self.rejected = held_out_sets(workspace), 0, Counter[str]()
        self.places: list[tuple[int, str, int]] = []
        self.probes: dict[HeldOut, list[tuple[bytes, int, str]]] = {}
        self._texts: dict[str, list[list[str]]] = {rule: [[] for _ in self.sets] for rule in workspace.family(Eval).rules}
        for number, held in enumerate(self.sets):
            before, rejected = len(self.places), _rejected(quarantine)
            self._read(number, source_to_judge(workspace, held.family, held.name), quarantine if held.family == "eval" else None)
            self.rejected += Counter({held.label: _rejected(quarantine) - rejected})
            if held.family == "eval" and len(self.places) == before:
                raise SourceError(
                    f"eval_raw[{held.name}]: its schema makes no example of any row, so nothing of it could be found. Correct the schema"
                )

    def _read(self, number: int, source: Source, quarantine: Quarantine | None) -> None:
        files, drawn = (*source.sources.files, *source.sources.test_files), list[tuple[bytes, int, str]]()
        for examples, items, in_test in examples_of(source.reading(), "read held-out", quarantine=quarantine):
            for item, parts, said in zip(items, examples.parts, examples.said, strict=True):
                held_back = is_held_out(source.family, item, in_test)
                self.unsure += held_back is None
                if held_back:
                    drawn.append((xxhash.xxh3_128_digest(item.id.encode()), len(self.places), said))
                    self.places.append((number, files[item.record.file].name, item.record.row))
                    for rule, texts in self._texts.items():
                        texts[number].append(RULES[rule].text(parts))
            drawn = nsmallest(PROBED, drawn)
        self.probes[self.sets[number]] = drawn

    @cached_property
    def passages(self) -> dict[str, Passages]:
        """The passages by each rule."""
        return {rule: Passages.of(RULES[rule], texts) for rule, texts in self._texts.items()}

    def tables(self) -> dict[str, Any]:
        """File name → table of Arrow: a row for each held-out text, and the passages by each rule."""
        import pyarrow as pa

        numbers, files, rows = zip(*self.places, strict=True) if self.places else ((), (), ())
        columns = {
            "family": pa.array([self.sets[number].family for number in numbers], pa.string()).dictionary_encode(),
            "domain": pa.array([self.sets[number].name for number in numbers], pa.string()).dictionary_encode(),
            "file": pa.array(files, pa.string()).dictionary_encode(),
            "row": pa.array(rows, pa.int64()),
        }
        tables = {}
        for rule, found in self.passages.items():
            columns |= {f"{rule}.units": found.units, f"{rule}.size": found.sizes}
            tables[PASSAGES.format(rule)] = pa.table({"hash": found.hashes, "text": found.texts, "start": found.starts})
        return {TEXTS: pa.table(columns), **tables}


def _rejected(quarantine: Quarantine) -> int:
    """How many records were rejected, but for those that `where` and tombstones leave out."""
    return sum(count for reason, count in quarantine.counts.items() if reason.partition("/")[2] not in MISSED)


def write_passages(target: Target, quarantine: Quarantine) -> Draft:
    """Write the passages of everything that is held out."""
    read = Texts(target.workspace, quarantine)
    for name, table in read.tables().items():
        write_table(target.payload / name, table)
    labels = [read.sets[number].label for number, _, _ in read.places]
    none_finds = np.logical_and.reduce([each.too_short for each in read.passages.values()])  # the rules together
    by_set, uncovered = Counter(labels) + read.rejected, Counter(compress(labels, none_finds)) + read.rejected
    counts = {
        "read": len(labels) + sum(quarantine.counts.values()),
        "kept": len(labels),
        "texts": len(labels),
        "by_set": dict(sorted(by_set.items())),
        "too_short": {rule: int(each.too_short.sum()) for rule, each in read.passages.items()},
        "uncovered": dict(sorted(uncovered.items())),
        "unsure": read.unsure,
        "recall": {
            held.label: recall(read.passages, {number: text for _, number, text in drawn}) for held, drawn in read.probes.items() if drawn
        },
    }
    return Draft(counts, {"uncovered": max((count / by_set[label] for label, count in uncovered.items()), default=0.0)})


class Held(Struct, frozen=True):
    """What is held out, as `eval_passages` has it.

    Attributes:
        sets, ids: of each text, its data set and the id of its record.
        passages: by rule.
    """

    sets: Sequence[HeldOut]
    ids: Sequence[str]
    passages: Mapping[str, Passages]


def read_passages(published: Published) -> Held:
    """Read `eval_passages`."""
    texts = read_table(published, TEXTS)
    family, domain, file, row = (texts[name].to_pylist() for name in ("family", "domain", "file", "row"))
    passages = {}
    for rule in published.manifest.recipe["rules"]:
        table = read_table(published, PASSAGES.format(rule))
        columns = (texts[f"{rule}.units"], texts[f"{rule}.size"], table["hash"], table["text"], table["start"])
        passages[rule] = Passages(RULES[rule], *map(np.asarray, columns))
    return Held(list(map(HeldOut, family, domain)), [f"{name}:{at}" for name, at in zip(file, row, strict=True)], passages)


# `<family>_leaks`.


def leaks_recipe(family: str, workspace: Workspace, name: str) -> dict[str, Any]:
    """What the leaks of a domain depend on, apart from its sources and what is held out."""
    options = workspace.family(FAMILIES[family])
    return {
        "domain": name,
        **reading_recipe(domain_of(options, name), attended=options.form_of(name) is Sample),
        "deduplicate": options.preprocessing.deduplicate,
        "policy": workspace.family(Eval).policy,
        "search": SEARCH_VERSION,
    }


def leaks_of(workspace: Workspace, family: str, name: str) -> tuple[Any, int]:
    """The leaks into a domain as a table of Arrow, a row for each example and held-out data set, and how many examples were searched.

    Columns: `file`, `row`: of the example. `dropped`, `detail`: as quality steps have them. `rule`; `family`, `domain`: of the held-out data set;
    `record`: id of its text that shares most; `shared`, `units`: shared units, and all units of that text; `texts`: how many of its texts leak.
    """
    import pyarrow as pa

    held, examples_read, rows = read_passages(workspace.built("eval_passages")), 0, list[tuple[Any, ...]]()
    own, reason = HeldOut(family, name), REASON if drops(workspace) else None
    foreign = np.array([one != own for one in held.sets], bool)
    refuses = (QUALITY,) if workspace.family(FAMILIES[family]).quality.steps else ()
    source = replace(source_to_judge(workspace, family, name), refuses=refuses)
    for examples, items, _ in examples_of(source.reading(), "search"):
        examples_read += len(examples)
        leaks = {rule: passages.leaks(examples, foreign) for rule, passages in held.passages.items()}
        for number in sorted(set().union(*leaks.values())):
            found: dict[HeldOut, list[tuple[str, Leak]]] = {}
            for rule, by_example in leaks.items():
                for leak in by_example.get(number, ()):
                    found.setdefault(held.sets[leak.text], []).append((rule, leak))
            for one, by_rule in found.items():
                (rule, most), record = by_rule[0], items[number].record
                id_, units, texts = held.ids[most.text], int(held.passages[rule].units[most.text]), sum(rule == of for of, _ in by_rule)
                unit = "paragraphs" if RULES[rule].least_words else "words"
                detail = f"shares {most.shared:,} of {units:,} {unit} with {id_} of {one.label} ({rule})"
                rows.append((record.file, record.row, reason, detail, rule, one.family, one.name, id_, most.shared, units, texts))
    return pa.Table.from_pylist([dict(zip(_COLUMNS, row, strict=True)) for row in rows], pa.schema(_COLUMNS)), examples_read


_COLUMNS = {"file": "int32", "row": "int64", **dict.fromkeys(("dropped", "detail", "rule", "family", "domain", "record"), "string")}
_COLUMNS |= dict.fromkeys(("shared", "units", "texts"), "int64")
"""Of a table of leaks, with Arrow's types."""


def write_leaks(target: Target, quarantine: Quarantine) -> Draft:
    """Search one domain for what is held out, and write what was found."""
    family, name = target.asset.family, target.partition
    table, read = leaks_of(target.workspace, family, name)
    write_table(target.payload / VERDICTS, table)
    leaks = table.to_pylist()
    places = {(leak["file"], leak["row"]) for leak in leaks}
    by_set = Counter(HeldOut(leak["family"], leak["domain"]).label for leak in leaks)
    counts: dict[str, Any] = {"examples": read, "leaks": len(places), "by_set": dict(sorted(by_set.items()))}
    held_out = target.workspace.built("eval_passages").manifest.counts
    own = HeldOut(family, name).label
    counts["uncovered"] = {label: [count, held_out["by_set"][label]] for label, count in held_out["uncovered"].items() if label != own}
    uncovered = max((count / total for count, total in counts["uncovered"].values()), default=0.0)
    if leaks:
        first = leaks[0]
        sources = source_to_judge(target.workspace, family, name).sources
        counts["first"] = f"{(*sources.files, *sources.test_files)[first['file']].name}:{first['row']} {first['detail']}"
    return Draft(counts, {"leaks": len(places) / max(1, read), "uncovered": uncovered})


def tried(store: Store) -> list[tuple[str, str, bool, str]]:
    """Whether a leak that is left out is noticed; and for each rule, whether it finds the text of an invented data set in an example."""
    stored, rules = read_table(store.published, VERDICTS), store.workspace.family(Eval).rules
    verdicts = [same_rows(stored, stored.slice(1))] if stored.num_rows else []
    left_out = [("a leak is left out", "leaks_again", not verdict.passed, verdict.summary) for verdict in verdicts]
    found = {rule: finds_planted(rule) for rule in rules}
    return left_out + [("a planted text", rule, is_found, "finds it" if is_found else "finds nothing") for rule, is_found in found.items()]
