"""Exports: a published store → the files that one trainer reads, as a store of its own.

A family's configuration names them; each is an asset ``<family>_export_<name>`` below its source:

    exports:
      trl: {from: sft_packed, to: hf_arrow, options: {layout: trl}}
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from msgspec import Struct, structs
from msgspec.structs import replace

from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.checks.sources_again import domain_source, example_of, files_of, stored_rows
from prep_assets.config.family import Chat
from prep_assets.config.models import FAMILIES
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import ConfigError, Refused, StoreError, nearest, require_known
from prep_assets.extensions.exports.compared import compare
from prep_assets.extensions.exports.readable import lost_mask_error
from prep_assets.extensions.exports.registry import Progress, check_borders, check_options_apply, export, export_named
from prep_assets.extensions.lines.write import extra_columns, written
from prep_assets.graph.graph import EVERY, EXPORT
from prep_assets.own_code import added_code
from prep_assets.pipeline.asset import Asset, Check, Store, Target, vocabulary_size
from prep_assets.pipeline.examples import converter
from prep_assets.pipeline.media import shown_files
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.proofs.certificate import certified, ends_answers_alone
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import Sample
from prep_assets.schemas.registry import check_options
from prep_assets.stores.published import Draft
from prep_assets.stores.table import Schema, Table, open_table
from prep_assets.stores.verification import write_json
from prep_assets.stores.version_folders import Published
from prep_assets.text.certify import PROBES, stopped_answers, try_render
from prep_assets.text.conversation import messages, pieces
from prep_assets.text.environment import MessageForm
from prep_assets.text.template import ChatTemplate

GENERATION_CONFIG = "generation_config.json"
"""Every token at which the trained model is to stop, beside data sets for Hugging Face trainers.

A chat template may end turns with another token than the tokenizer's ``eos_token``. The data teaches the one, generation waits for the other, and
never ends. Trainers keep the base model's file, so this one is to be copied over it: ``model.generation_config`` takes the same keys.
"""
_WITH_CONFIG = ("hf_arrow", "hf_parquet")
PARTS = MessageForm(content="parts", image_parts=True)
"""Messages as trainers of vision models take them, whatever a template takes."""


def stop_ids(workspace: Workspace, source: Asset, format: str) -> list[int]:
    """Ids of the tokens at which generation stops: the template's stops, then the tokenizer's; none where the export has no such file."""
    model = workspace.family(FAMILIES[source.family])
    with_answers = any(stream.masked or stream.schema.packed for stream in source.streams.values())
    if format not in _WITH_CONFIG or not with_answers or not isinstance(model, Chat):
        return []
    vocabulary = workspace.vocabulary(model)
    named = [vocabulary.backend.token_to_id(stop) for stop in generation_stops(workspace.template(model))]
    return list(dict.fromkeys([*(stop for stop in named if stop is not None), vocabulary.eos_id]))


def write_generation_config(folder: Path, stops: list[int]) -> None:
    """Write the file, where there is anything to say."""
    if stops:
        write_json(folder / GENERATION_CONFIG, {"eos_token_id": stops}, indent=2)


class Exporting(Struct, frozen=True):
    """One export.

    Attributes:
        name: what the configuration calls it; empty for a folder that no asset keeps.
        source: the asset that it reads.
        format, stream, options: as in the configuration; `stream` is one of the source's.
    """

    name: str
    source: Asset
    format: str
    stream: str
    options: Mapping[str, Any]

    @property
    def schema(self) -> Schema:
        """Of what it reads."""
        return self.source.streams[self.stream].schema

    def stem(self, partition: str) -> str | None:
        """Name of the stream's files in a store of the source."""
        stem = self.source.streams[self.stream].stem
        return stem and stem.format(partition=partition)

    def all_options(self, workspace: Workspace) -> dict[str, Any]:
        """Every option of the format: what is set, what the family's vocabulary says of padding and size, the format's defaults."""
        exporter = export_named(self.format)
        known = exporter.options
        defaults = {name: option.default for name, option in known.items() if option.default is not inspect.Parameter.empty}
        if {"pad_id", "eos_id", "vocab_size"} & set(known) and not self.schema.role("json"):  # text needs no tokenizer
            family = workspace.family(FAMILIES[self.source.family])
            vocabulary = workspace.vocabulary(family)
            suggested = {"pad_id": vocabulary.pad_id, "eos_id": vocabulary.eos_id, "vocab_size": vocabulary_size(family, vocabulary)}
            if (eos := self.options.get("eos_id") or 0) >= suggested["vocab_size"]:
                raise ConfigError(
                    f"export {self.format!r}, option 'eos_id': {eos:,} is no token of the model, which has {suggested['vocab_size']:,}. "
                    f"Leave it out: that of {vocabulary.name} is {vocabulary.eos_id}"
                )
            defaults |= {
                name: value for name, value in suggested.items() if name in known and exporter.means(name, self.schema, self.options)
            }
        return {**defaults, **self.options}


def exporting(source: Asset, format: str, stream: str | None, options: Mapping[str, Any], *, name: str = "") -> Exporting:
    """An export, checked.

    Raises:
        ConfigError: an unknown format, stream or option, or a combination that does not work; the message names the nearest.
    """
    with about("to"):
        exporter = export_named(format)
    streams = source.streams
    chosen = next(iter(streams)) if stream is None else stream
    require_known(f"stream: {source.name} has no stream", chosen, streams, "It has")
    schema = streams[chosen].schema
    with about("to" if chosen == source.name else f"to: {chosen} of {source.name}"):
        exporter.taken(schema)
    with about("options"):
        check_options(f"export {format!r}", options, exporter.write, exporter.options)
        check_options_apply(exporter, schema, options)
    if (options.get("messages") or exporter.chats) and source.name != "sft_tokens":
        raise ConfigError(f"to: {format} writes chats, which are those of sft_tokens; {source.name} has none")
    if streams[chosen].masked and not exporter.keeps_mask(options):
        with about("to"):
            raise lost_mask_error(format, source.name)
    return Exporting(name, source, format, chosen, options)


@contextmanager
def about(key: str) -> Iterator[None]:
    """Put the key of the configuration before what is wrong with it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def export_store(declared: Exporting, workspace: Workspace, published: Published, out: Path, progress: Progress | None) -> Table:
    """Write a published store to the folder `out`, and return what was read.

    Raises:
        StoreError: a file of the store is not what its manifest says; nothing is written, and the message has the command that builds it again.
        ConfigError: as `prep_assets.export`.
    """
    try:
        published.verify()
    except StoreError as error:
        command = build_command(published.manifest.asset, published.manifest.partition)
        raise StoreError(f"{error}\nBuild it again:\n  {command}") from error
    check_borders(export_named(declared.format), published.manifest.recipe)
    source = _source(declared, workspace, published)
    export(source, declared.format, out, progress=progress, **declared.all_options(workspace))
    write_generation_config(out, stop_ids(workspace, declared.source, declared.format))
    return source


def open_export_source(declared: Exporting, published: Published) -> Table:
    """Open what an export reads."""
    partition = published.manifest.partition
    return open_table(published.directory, declared.stem(partition), partition, schema=declared.schema)


def _source(declared: Exporting, workspace: Workspace, published: Published) -> Table:
    """What an export reads, with the messages of its records or the tokenizer if it asks for them."""
    source, exporter = open_export_source(declared, published), export_named(declared.format)
    if exporter.tokenizer:
        source = dataclasses.replace(source, tokenizer=workspace.vocabulary(workspace.family(FAMILIES[declared.source.family])).backend)
    asked = exporter.chats
    if not asked and not declared.options.get("messages"):
        return source
    read = _whole_chats if asked == "whole" else _chats
    return dataclasses.replace(source, chats=lambda: read(Store(workspace, declared.source, published), source))


def _samples(store: Store, source: Table) -> Iterator[tuple[int, str, Sample]]:
    """Number, id and sample of each record, read from its source again."""
    convert = converter(domain_source(store).domain, Sample)
    joined = stored_rows(store, dataclasses.replace(source, origins=structs.replace(source.origins, several=True)))
    for number, identity, payload in chain.from_iterable(rows.records() for rows in joined):
        yield number, identity, example_of(convert, payload, identity, Sample)


def _whole_chats(store: Store, source: Table) -> Iterator[dict[str, Any]]:
    """The messages of each record with reasoning, calls and weights, as TRL has them, and its tools."""
    for _, identity, sample in _samples(store, source):
        try:
            yield {"messages": written(sample.turns, "messages", {}, "export"), **extra_columns(sample)}
        except Refused as error:
            raise ConfigError(f"{identity} as messages: {error}. Leave it out of the domain") from error


def _chats(store: Store, source: Table) -> Iterator[list[dict[str, Any]]]:
    """The messages of each record, in parts, whose render, with the placeholders of the images, has the ids of the record.

    Raises:
        ConfigError: it has others.
    """
    assert isinstance(store.family, Chat)
    template, backend = store.workspace.template(store.family), store.vocabulary.backend
    ready = files_of(store).ready_again
    for number, identity, sample in ((number, identity, ready(sample)) for number, identity, sample in _samples(store, source)):
        shown = messages(sample, pieces(sample, marks=template.marks, form=PARTS), form=PARTS)
        chat = [{"role": message["role"], "content": message.get("content") or []} for message in shown]
        try:
            written = re.split("|".join(map(re.escape, template.marks.values())), template.render(chat))
        except Refused as error:
            raise ConfigError(f"option 'messages': {identity} as messages in parts: {error}") from error
        placeholders = [region.placeholder or template.image for region in shown_files(sample.turns)]
        text = "".join(chain.from_iterable(zip_longest(written, placeholders, fillvalue="")))
        if backend.encode(text, add_special_tokens=False).ids != source.record(number, "tokens").tolist():
            raise ConfigError(
                f"option 'messages': {identity} as messages, {str(chat)[:200]}, is tokenized to other ids than those of the store: it was cut, or has "
                "tools, reasoning or typed control tokens, which trainers read otherwise. Leave it out of the domain, or messages out of the export"
            )
        yield chat


def _depends(declared: Exporting, workspace: Workspace, partition: str) -> dict[str, Any]:
    """What the files depend on."""
    return {
        "from": declared.source.name,
        "stream": declared.stream,
        "format": declared.format,
        "options": declared.all_options(workspace),
        **({"package": code} if (code := added_code(export_named(declared.format).write.__module__)) else {}),
        **({"stops": stops} if (stops := stop_ids(workspace, declared.source, declared.format)) else {}),
    }


def _write(target: Target, quarantine: Quarantine, *, declared: Exporting) -> Draft:
    """Write a store's files for a trainer; the payload holds nothing else."""
    workspace, partition = target.workspace, target.partition
    what = f"export {workspace.place(asset_name(declared), partition).label}"
    progress = partial(workspace.progress, what) if workspace.progress else None
    read = export_named(declared.format).below(workspace.configs, declared.options)  # the recipe has folders as they are written
    source = export_store(
        replace(declared, options=read), workspace, workspace.built(declared.source.name, partition), target.payload, progress
    )
    return Draft(_counts(source), {})


def _counts(source: Table) -> dict[str, Any]:
    if source.path is not None:
        return {"rows": len(source)}
    responses = {"responses": len(source.columns["responses"].ends)} if "responses" in source.columns else {}
    return {"rows": len(source), **responses, "tokens": int(source.lengths.sum())}


def _readable(declared: Exporting, store: Store) -> Verdict:
    """Read back by other code, rows equal those of the store that it was made from.

    Raises:
        StoreError: that store was built again since, so there is nothing to compare with.
    """
    workspace, recipe, partition = store.workspace, store.recipe, store.partition
    source = store.above(declared.source.name, partition, recipe["source"])
    table = _source(declared, workspace, source)
    verdict = compare(store.directory, table, declared.format, recipe["options"])
    fault = _stops_fault(declared, store, trained="loss_mask" in table.columns) if verdict.passed else ""
    return Verdict(False, fault, verdict.numbers, Worst(GENERATION_CONFIG, fault)) if fault else verdict


def _stops_fault(declared: Exporting, store: Store, *, trained: bool) -> str:
    """Return what is wrong with the tokens at which generation stops: the one that ends an answer in a fresh render must be among them, and all of them
    control tokens or the end of text. Answers that are `trained` for Hugging Face must have them."""
    path, family = store.directory / GENERATION_CONFIG, store.workspace.family(FAMILIES[declared.source.family])
    if not isinstance(family, Chat):
        return ""
    if not path.is_file():
        is_missed = trained and declared.format in _WITH_CONFIG
        return f"it has no {GENERATION_CONFIG}: what is trained on it would not stop. Export it again" if is_missed else ""
    vocabulary, template = store.workspace.vocabulary(family), store.workspace.template(family)
    stops, stop = json.loads(path.read_text("utf-8"))["eos_token_id"], certified(template)["stop_token"]
    is_missing = stop and vocabulary.control[stop] not in stops and ends_answers_alone(template, stop)
    if is_missing or not {*stops} <= {*vocabulary.control.values(), vocabulary.eos_id}:
        return f"{GENERATION_CONFIG} has {stops}; an answer of {template.name} ends with {stop!r}, {vocabulary.control.get(stop)}"
    return ""


def asset_name(declared: Exporting) -> str:
    """The key of the asset that keeps an export."""
    return f"{declared.source.family}_{EXPORT}_{declared.name}"


def export_asset(declared: Exporting) -> Asset:
    """The asset that keeps an export."""
    exporter = export_named(declared.format)
    return Asset(
        name=asset_name(declared),
        family=declared.source.family,
        description=f"{declared.source.name} as files of {declared.format}, {declared.stream}.\n\n{exporter.summary}",
        write=partial(_write, declared=declared),
        promises=("a sample of rows, read back, equals the source",),
        inputs=(("source", declared.source),),
        depends=partial(_depends, declared),
        partitioned=declared.source.partitioned,
        options=(f"exports.{declared.name}",),
        checks=(
            INTEGRITY,
            Check(
                "readable",
                "First, last and 100 random rows, read back by code that did not write them, equal the store's.",
                partial(_readable, declared),
            ),
        ),
        stage=EXPORT,
        kind=exporter.kind,
    )


def asked_assets(workspace: Workspace, family: str) -> list[Asset]:
    """The assets that keep the exports which a family's configuration asks for.

    Raises:
        ConfigError: every fault in them.
    """
    return list(map(export_asset, family_exports(workspace, family)))


def family_exports(workspace: Workspace, family: str) -> list[Exporting]:
    """The exports that a family's configuration asks for.

    Raises:
        ConfigError: every fault in them.
    """
    exports, faults = [], []
    for name, entry in workspace.family(FAMILIES[family]).exports.items():
        try:
            with about("from"):
                source = exported(family, entry.source)
                if source.absent and (why := source.absent(workspace)):
                    raise ConfigError(f"{source.name} is not an asset here: {why}")
            exports.append(exporting(source, entry.to, entry.stream, entry.options, name=name))
        except ConfigError as error:
            faults.append(f"  exports.{name}.{error}")
    if faults:
        raise ConfigError("\n".join([f"{workspace.configs / family}.yaml:", *faults]))
    return exports


def exported(family: str, name: str) -> Asset:
    """The asset of a family that an export reads.

    Raises:
        ConfigError: it has no such asset that can be exported; the message names the nearest.
    """
    sources = [asset.name for asset in EVERY.values() if asset.family == family and asset.streams]
    if name in sources:
        return EVERY[name]
    if name in EVERY and EVERY[name].streams:
        owner = EVERY[name].family
        raise ConfigError(f"{name!r} is an asset of {owner}: export it in {owner}.yaml. This family has: {', '.join(sources)}")
    raise ConfigError(f"no asset {name!r} that can be exported{nearest(name, sources) or '.'} This family has: {', '.join(sources)}")


STOPS = ("last answer", "tool call", "earlier answer")


def generation_stops(template: ChatTemplate) -> tuple[str, ...]:
    """The control tokens at which a model trained on the template has to stop: those that end answers and tool calls in renders of the probes,
    those of a last answer first.

    A token that also occurs inside generated text is not a stop: gpt-oss ends earlier answers and reasoning with ``<|end|>``, so a model that
    stopped there would never answer.
    """
    kind_of_stop: dict[str, str] = {}
    inner_tokens: set[str] = set()
    for sample in PROBES.values():
        rendered = try_render(template, sample)
        for kind, text, generated in () if isinstance(rendered, Refused) else stopped_answers(rendered):
            token = template.ending(text)
            kind_of_stop[token] = min(kind, kind_of_stop.get(token, kind), key=STOPS.index)
            inner_tokens.update(token for token in template.control if token in generated)
    return tuple(
        sorted(
            (token for token in kind_of_stop if token and token not in inner_tokens),
            key=lambda token: (STOPS.index(kind_of_stop[token]), token),
        )
    )
