"""Exports: a published store → the files that one trainer reads, as a store of its own.

A family's configuration names them; each is an asset ``<family>_export_<name>`` below its source:

    exports:
      trl: {from: sft_packed, to: hf_arrow, options: {layout: trl}}
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prep_assets.assets.build import Build
from prep_assets.assets.checks.read_back import compare
from prep_assets.assets.commands import materialize_command
from prep_assets.assets.reading.rl_domains import group_domains
from prep_assets.assets.versions import EXPORT as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.generation import stop_ids, write_generation_config
from prep_assets.config.models import FAMILIES, Rl
from prep_assets.errors import CheckFailed, ConfigError, StoreError, nearest
from prep_assets.exports.registry import check_meaning, check_options, export, export_named
from prep_assets.exports.source import Pairs, Source, open_source
from prep_assets.exports.unmasked import lost_mask
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.published import Draft, Published, open_published
from prep_assets.stores.tokens import TokenStore

STAGE = "export"


@dataclass(frozen=True, slots=True)
class Stream:
    """What can be exported of an asset's store: `kind` as a format takes it, `stem` of its files; `None`: both sides of pairs, or the three
    streams of groups."""

    kind: type
    stem: str | None


def _streams(kind: type, *names: str, prefix: str = "") -> dict[str, Stream]:
    return {name: Stream(kind, prefix + name) for name in names}


SOURCES: Mapping[str, Mapping[str, Mapping[str, Stream]]] = {
    "pretrain": {"pretrain_tokens": _streams(TokenStore, "train", "dev", prefix="{partition}_")},
    "sft": {"sft_tokens": _streams(TokenStore, "train", "dev"), "sft_packed": _streams(PackedStore, "sft_packed", "sft_dev_packed")},
    "preference": {
        "preferences": _streams(Lines, "preferences", "preferences_test", "unpaired", "unpaired_test"),
        "preference_tokens": {"pairs": Stream(Pairs, None), **_streams(TokenStore, "chosen", "rejected")},
    },
    "rl": {
        "rl_prompts": _streams(Lines, "rl_prompts_train", "rl_prompts_test"),
        "arithmetic_prompts": _streams(Lines, "arithmetic_prompts"),
        "rl_tokens": _streams(TokenStore, "prompts", "arithmetic"),
        "rl_groups": {"train": Stream(GroupStore, None), "test": Stream(GroupStore, "test")},
    },
}
"""Family → asset → what can be exported of it, by name; the first is what is exported where none is named."""
MASKED = ("sft_tokens", "preference_tokens")
"""Assets whose token streams have a loss mask."""


@dataclass(frozen=True, slots=True)
class Exporting:
    """One export.

    Attributes:
        asset: key of the asset that it is; empty for a folder that no asset keeps.
        family, source: what it reads.
        format, stream, options: as in the configuration; `stream` is a name in `SOURCES`.
    """

    asset: str
    family: str
    source: str
    format: str
    stream: str
    options: Mapping[str, Any]

    def stem(self, partition: str) -> str | None:
        """Name of the stream's files in a store of the source."""
        stem = SOURCES[self.family][self.source][self.stream].stem
        return stem and stem.format(partition=partition)

    def all_options(self, workspace: Workspace) -> dict[str, Any]:
        """Every option of the format: what is set, what the family's vocabulary says of padding and size, the format's defaults."""
        found, kind = export_named(self.format), SOURCES[self.family][self.source][self.stream].kind
        known = found.options
        defaults = {name: each.default for name, each in known.items() if each.default is not inspect.Parameter.empty}
        if {"pad_id", "vocab_size"} & set(known):
            vocabulary = workspace.vocabulary(workspace.family(FAMILIES[self.family]))
            said = {"pad_id": vocabulary.pad_id, "vocab_size": vocabulary.size}
            defaults |= {name: value for name, value in said.items() if name in known and found.means(name, kind, self.options)}
        return {**defaults, **self.options}


def exporting(family: str, source: str, format: str, stream: str | None, options: Mapping[str, Any], *, asset: str = "") -> Exporting:
    """An export, checked.

    Raises:
        ConfigError: a source, format, stream or option that there is not, or that do not go together; the message names the nearest.
    """
    streams = _streams_of(family, source)
    with _about("to"):
        found = export_named(format)
    chosen = next(iter(streams)) if stream is None else stream
    if chosen not in streams:
        raise ConfigError(f"stream: {source} has no stream {stream!r}{nearest(chosen, streams) or '.'} It has: {', '.join(streams)}")
    kind = streams[chosen].kind
    if not issubclass(kind, found.takes):
        takes = ", ".join(each.__name__ for each in found.takes)
        raise ConfigError(f"to: {format} writes {takes}; {chosen} of {source} is a {kind.__name__}")
    with _about("options"):
        check_options(found, options)
        check_meaning(found, kind, options)
    if kind is TokenStore and source in MASKED:
        _refuse_lost_mask(source, format, options)
    return Exporting(asset, family, source, format, chosen, options)


@contextmanager
def _about(key: str) -> Iterator[None]:
    """Put the key of the configuration before what is wrong with it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def _streams_of(family: str, source: str) -> Mapping[str, Stream]:
    sources = SOURCES[family]
    if source not in sources:
        owner = next((other for other, assets in SOURCES.items() if source in assets), None)
        problem = f"{source!r} is an asset of {owner}: export it in {owner}.yaml" if owner else f"no asset {source!r} that can be exported"
        hint = "" if owner else nearest(source, sources)
        raise ConfigError(f"from: {problem}{hint or '.'} This family has: {', '.join(sources)}")
    return sources[source]


def _refuse_lost_mask(source: str, format: str, options: Mapping[str, Any]) -> None:
    if format in ("litdata", "tlfs") or (format == "megatron" and options.get("layout") in (None, "text")):
        with _about("to"):
            raise lost_mask(format, source)


def family_exports(workspace: Workspace, family: str) -> list[Exporting]:
    """The exports that a family's configuration asks for.

    Raises:
        ConfigError: every fault in them.
    """
    exports = workspace.family(FAMILIES[family]).exports
    found, faults = [], []
    for name, each in exports.items():
        try:
            if each.source == "rl_groups" and family == "rl" and not group_domains(workspace.family(Rl)):
                raise ConfigError("from: rl_groups is no asset here: no domain has a schema that gives a Group, as the schema group does")
            found.append(exporting(family, each.source, each.to, each.stream, each.options, asset=f"{family}_export_{name}"))
        except ConfigError as error:
            faults.append(f"  exports.{name}.{error}")
    if faults:
        raise ConfigError("\n".join([f"{workspace.configs / family}.yaml:", *faults]))
    return found


def export_store(each: Exporting, workspace: Workspace, published: Published, out: Path, progress: Callable[[int, int], None]) -> Source:
    """Write a published store to the folder `out`, and return what was read.

    Raises:
        StoreError: a file of the store is not what its manifest says; nothing is written, and the message has the command that builds it again.
        ConfigError: as `prep_assets.exports.export`.
    """
    try:
        published.verify()
    except StoreError as error:
        command = materialize_command(published.manifest.asset, published.manifest.partition)
        raise StoreError(f"{error}\nBuild it again:\n  {command}") from error
    source = open_export_source(each, published)
    export(source, each.format, out, progress=progress, **each.all_options(workspace))
    write_generation_config(out, stop_ids(workspace, each.family, each.source, each.format))
    return source


def open_export_source(each: Exporting, published: Published) -> Source:
    """What an export is made from."""
    return open_source(published, each.stem(published.manifest.partition))


def export_recipe(each: Exporting, workspace: Workspace, partition: str) -> dict[str, Any]:
    """What the files depend on."""
    source = workspace.published(each.source, partition)
    return {
        "stage": STAGE,
        "version": VERSION,
        "from": each.source,
        "source": source.manifest.content_hash if source else None,
        "stream": each.stream,
        "format": each.format,
        "options": each.all_options(workspace),
        **({"stops": stops} if (stops := stop_ids(workspace, each.family, each.source, each.format)) else {}),
    }


def export_build(each: Exporting, workspace: Workspace, partition: str) -> Build:
    """Write a store's files for a trainer; the payload holds nothing else.

    Raises:
        StoreError: the source has no store.
    """
    published = open_published(workspace.stores, each.source, partition, remedy=materialize_command(each.source, partition))
    place = workspace.place(each.asset, partition)

    def write(payload: Path, quarantine: Path) -> Draft:
        source = export_store(
            each, workspace, published, payload, lambda done, total: workspace.progress(f"export {place.label}", done, total)
        )
        return Draft(_counts(source), {}, ("a sample of rows, read back, equals the source",))

    def audit(payload: Path) -> None:
        verdict = compare(payload, open_export_source(each, published), each.format, each.all_options(workspace))
        if not verdict.passed:
            raise CheckFailed(verdict.summary)

    recipe = export_recipe(each, workspace, partition)
    return Build(place, recipe, export_recipe(each, workspace.plain, partition), write, audit)


def _counts(source: Source) -> dict[str, Any]:
    if isinstance(source, Lines):
        return {"rows": len(source)}
    if isinstance(source, PackedStore):
        return {"rows": len(source), "tokens": int(source.documents["length"].sum())}
    if isinstance(source, GroupStore):
        return {"rows": len(source), "responses": len(source.responses), "tokens": source.tokens}
    sides = (source.chosen, source.rejected) if isinstance(source, Pairs) else (source,)
    return {"rows": len(source), "tokens": sum(side.tokens for side in sides)}


def readable(workspace: Workspace, published: Published) -> Verdict:
    """The check of every export: read back by other code, rows equal those of the store that it was made from.

    Raises:
        StoreError: that store was built again since, so there is nothing to compare with.
    """
    manifest, recipe = published.manifest, published.manifest.recipe
    family = manifest.asset.partition(f"_{STAGE}_")[0]
    each = Exporting(manifest.asset, family, recipe["from"], recipe["format"], recipe["stream"], recipe["options"])
    source = open_published(workspace.stores, each.source, manifest.partition, remedy=materialize_command(each.source, manifest.partition))
    if source.manifest.content_hash != recipe["source"]:
        where = workspace.place(each.source, manifest.partition).label
        raise StoreError(f"{where} was built again since. Export it again: {materialize_command(manifest.asset, manifest.partition)}")
    return compare(published.directory, open_export_source(each, source), each.format, recipe["options"])
