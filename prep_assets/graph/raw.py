"""`*_raw`: pins a domain's source files: which they are, their hashes, how many records they hold, where they can be cut. Nothing is copied. And the
verdicts on them, `<family>_<name>` of each entry point of `prep_assets.verdicts`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from prep_assets import plugins
from prep_assets.checks.of_stores import INTEGRITY, RAW_ACCOUNTING
from prep_assets.config.family import Domain, Family
from prep_assets.config.models import FAMILIES, family_name
from prep_assets.data import tables
from prep_assets.data.addresses import is_remote
from prep_assets.data.files import SourceFile
from prep_assets.data.quarantine import Quarantine
from prep_assets.data.read import read_blocks
from prep_assets.data.tables import Cut, LineCuts, line_cuts, table_cuts
from prep_assets.errors import ConfigError, SourceError
from prep_assets.pipeline.asset import SOURCE_COLUMNS, Asset, Target
from prep_assets.pipeline.examples import PinnedDuplicates, RecordNotes, Stretch, columns_of, duplicates_of, shards_of
from prep_assets.pipeline.sources import (
    BLOCKS,
    SOURCES,
    Pinned,
    Router,
    benchmarks_pinned,
    domain_of,
    identities,
    images_pinned,
    proven,
    router_of,
)
from prep_assets.pipeline.tokens import FEWEST, QUARANTINE, shard_results, take_quarantine
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.stores.published import Draft
from prep_assets.stores.verification import write_json

_LINES = {"jsonl", "csv", "tsv", "txt"}
_TOKENIZED_IN_SHARDS = ("pretrain", "sft")
"""Families that find duplicates across shards of their sources; all others read sources in one process."""


def _depends(family: str, workspace: Workspace, name: str) -> dict[str, Any]:
    """What a raw store depends on: the files' names and hashes, and how they are read."""
    options = workspace.family(FAMILIES[family])
    domain, router = domain_of(options, name), router_of(workspace, options, name)
    files, test_files = workspace.files(domain), workspace.test_files(domain)
    return {
        "files": identities(workspace, files),
        "test_files": identities(workspace, test_files),
        "format": domain.format,
        "txt": domain.txt,
        "shard_bytes": tables.SHARD_BYTES,
        "domain": [router.key, router.value, *(sorted(router.taken(file)) for file in (*files, *test_files))] if router.key else None,
        **images_pinned(workspace, domain),
        **benchmarks_pinned(workspace, options),
    }


def _write(target: Target, quarantine: Quarantine) -> Draft:
    """Pin one domain: hash every file, read every record once, count."""
    workspace, options, name = target.workspace, target.family, target.partition
    domain, router = domain_of(options, name), router_of(workspace, options, name)
    files = {"files": workspace.files(domain), "test_files": workspace.test_files(domain)}
    formats = {file.format for role_files in files.values() for file in role_files}
    _check_txt(name, domain, formats)
    pins = {role: workspace.pins(role_files) for role, role_files in files.items()}
    blocks = {role: {pin.name: pin.blocks for pin in role_pins} for role, role_pins in pins.items()}
    remedy = build_command(target.asset.name, name)
    sources = {role: proven(role_files, blocks[role], remedy) for role, role_files in files.items()}
    counted = _by_workers(workspace, options, name, router, sources, target.payload, quarantine) or [
        _count(workspace, domain, router, file, quarantine) for file in (*sources["files"], *sources["test_files"])
    ]
    router.check()
    entries = iter(counted)
    listed = {role: [{**pin.identity, **next(entries)} for pin in role_pins] for role, role_pins in pins.items()}
    content = {**listed, **images_pinned(workspace, domain), **benchmarks_pinned(workspace, options)}
    write_json(target.payload / SOURCES, content, indent=1, ensure_ascii=False)
    write_json(target.payload / BLOCKS, blocks, indent=1, ensure_ascii=False)
    every = [entry for entries in listed.values() for entry in entries]
    rows = sum(entry["rows"] for entry in every)
    if not rows:
        raise SourceError(
            f"no records in {', '.join(entry['name'] for entry in every)}: {_why_empty(domain, formats)}. Fetch again, or leave it out"
        )
    if (empty := [entry["name"] for entry in every if not entry["rows"]]) and router.key is None:
        raise SourceError(f"no record in {', '.join(empty)}: {_why_empty(domain, formats)}. Fetch again, or leave it out")
    kept = rows - sum(quarantine.counts.values())
    counts = {"read": rows, "kept": kept, "files": len(every), "bytes": sum(entry["size"] for entry in every)}
    return Draft(counts, {})


def _check_txt(name: str, domain: Domain, formats: Set[str]) -> None:
    """Raises:
    ConfigError: `txt` is set, and the domain has no files of lines.
    """
    if domain.txt != "line" and formats.isdisjoint(tables.LINES):
        raise ConfigError(
            f"domains.{name}.txt: {domain.txt!r} has no effect here: the files are {', '.join(sorted(formats))}. Leave it out, or set format: txt or jsonl"
        )


def _why_empty(domain: Domain, formats: Set[str]) -> str:
    if domain.domain_key is not None:
        return f"no row has this domain's value of {domain.domain_key!r}"
    return "the list is empty" if formats == {"json"} else "only blank lines" if formats <= _LINES else "no rows"


def _count(workspace: Workspace, domain: Domain, router: Router, file: SourceFile, quarantine: Quarantine) -> dict[str, Any]:
    """How many rows a file has, and where it can be cut."""
    # a shorter file is one shard
    may_be_cut = _has_lines(file, domain) and (file.compression is not None or file.size > tables.SHARD_BYTES)
    rows, lines = 0, LineCuts(tables.SHARD_BYTES) if may_be_cut else None
    for block in router.picked(file, read_blocks(file, 0, txt=domain.txt, watch=lines)):
        quarantine.add_unreadable(file, block.unreadable)
        rows += len(block.records) + len(block.unreadable)
        if workspace.progress:
            workspace.progress(f"read {file.name}", block.bytes_read, file.size)
    return _counted(rows, table_cuts(file, tables.SHARD_BYTES) if file.format in tables.TABLES else lines.cuts if lines else [])


def _has_lines(file: SourceFile, domain: Domain) -> bool:
    return file.format in tables.LINES and domain.txt == "line"


def _counted(rows: int, cuts: list[Cut]) -> dict[str, Any]:
    return {"rows": rows, **({"cuts": cuts} if cuts else {})}


def _by_workers(
    workspace: Workspace,
    options: Family,
    name: str,
    router: Router,
    sources: Mapping[str, tuple[SourceFile, ...]],
    payload: Path,
    quarantine: Quarantine,
) -> list[dict[str, Any]]:
    """What `_count` gives of each file, by the workers; nothing where there are none, or files are cut only while they are read."""
    domain, files = options.domains[name], (*sources["files"], *sources["test_files"])
    lines = [_has_lines(file, domain) and file.compression is None and not is_remote(file.url) for file in files]
    large = all(lines) and sum(file.size for file in files) >= FEWEST * tables.SHARD_BYTES
    runner = workspace.runner(options) if large else None
    if runner is None:
        return []
    cuts = [line_cuts(file, tables.SHARD_BYTES) for file in files]
    shards = shards_of(Pinned(sources["files"], sources["test_files"], 0, "", cuts=tuple(map(tuple, cuts))), options.cluster.shards)
    rows = Counter[int]()
    noting = family_name(type(options)) in _TOKENIZED_IN_SHARDS and PinnedDuplicates.can_be(options, domain)
    work = partial(_read_shard, files=files, router=router, noting=noting)
    noted = []
    for result in shard_results(workspace, f"read {name}", runner, shards, work, payload):
        take_quarantine(result, quarantine)
        noted += [columns_of(result)] if noting else []
        rows.update({int(number): count for number, count in result.counts["rows"].items()})
        router.others.update(result.counts["others"])
    if noting and workspace.pool is not None:
        workspace.pool.noted[type(options), name] = PinnedDuplicates(domain, files, shards, duplicates_of(noted))
    runner.effort.shards += len(shards)
    return [_counted(rows[number], file_cuts) for number, file_cuts in enumerate(cuts)]


def _read_shard(stretches: Sequence[Stretch], folder: Path, *, files: Sequence[SourceFile], router: Router, noting: bool) -> dict[str, Any]:
    """The work of one shard: its rows by the number of their file, those of no domain, and those that cannot be read."""
    own_router, rows, notes = replace(router, others=Counter()), Counter[str](), RecordNotes()
    with Quarantine(folder / QUARANTINE) as quarantine:
        for stretch in stretches:
            file = files[stretch.file]
            for block in own_router.picked(file, read_blocks(file, stretch.file, part=stretch.part)):
                quarantine.add_unreadable(file, block.unreadable)
                rows[str(stretch.file)] += len(block.records) + len(block.unreadable)
                if noting:
                    notes.add(block.records)
        if noting:
            notes.save(folder)
        return {"rows": dict(rows), "others": dict(own_router.others), "refused": quarantine.counts}


def raw_asset(family: str, description: str) -> Asset:
    """The asset that pins the source files of a family."""
    return Asset(
        name=f"{family}_raw",
        family=family,
        description=description,
        write=_write,
        promises=("every record read",),
        depends=partial(_depends, family),
        checks=(INTEGRITY, RAW_ACCOUNTING),
        partitioned=True,
        stage="raw",
        kind="file",
        columns=SOURCE_COLUMNS,
    )


def verdict_assets(raw: Asset, *further: str) -> dict[str, Asset]:
    """The assets that judge the rows of a family, by their last words, which an entry point gives; what reads the rows has them among its inputs.

    Args:
        further: options that limit which rows are read.
    """
    entries, found = plugins.entries("verdicts"), dict[str, Asset]()

    def add(name: str) -> Asset:
        if name not in found:
            before = {each: add(each) for each in plugins.part_of(entries[name], "AFTER") if each in entries}
            found[name] = plugins.part_of(entries[name], "verdict_asset")(raw, before, further)
        return found[name]

    for name in entries:
        add(name)
    return found
