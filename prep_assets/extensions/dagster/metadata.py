"""Metadata of stores and checks for Dagster's web UI, and events of stores."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from html import escape
from itertools import islice, pairwise
from operator import getitem
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import numpy.typing as npt
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

from prep_assets import row
from prep_assets.caches import bounded_cache
from prep_assets.config.models import FAMILIES
from prep_assets.engine.plan import Step
from prep_assets.errors import PrepAssetsError
from prep_assets.extensions.dagster.site import Site
from prep_assets.extensions.explain.figures import binned, items, made_from, measure, refusals, refused_counts, shares
from prep_assets.graph.graph import EVERY, store_of, tables_of
from prep_assets.pipeline.asset import Asset, Store
from prep_assets.pipeline.workspace import Workspace, arguments, page_address
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.manifest import digest, file_hash
from prep_assets.stores.table import TOKENS, Table
from prep_assets.stores.version_folders import Published
from prep_assets.text.agreement import ComparedEngine
from prep_assets.text.engines import RoutedEngine
from prep_assets.text.visible import Preview, one_line, token_texts
from prep_assets.text.vocabulary import Vocabulary

# A row of tokens in Dagster's web UI: a diff block on the asset page, and a picture of coloured boxes behind a click.
#
# The UI's Markdown strips HTML and styles, and shows text inline only below 1,000 characters; a fenced ``diff`` block and an embedded SVG are all that it
# renders in colour.

INLINE_CHARACTERS = 960
LINE_CHARACTERS = 44
"""Characters of a line that fit a window of 1,440 pixels."""
TITLE_CHARACTERS = 240
SVG_TOKENS = 320
TRAINED, MASKED, WRONG = ("#1a7f37", "#ffffff"), ("#d0d7de", "#24292f"), ("#cf222e", "#ffffff")
WIDTH, ROW, BAR, FIGURES = 336, 24, 144, 220
NAME_CHARACTERS = 24
HEIGHT, BINS = 60, 28
FILL, INK, ASKED = "#218bff", "#818b98", "#cf222e"
"""Colours that are visible on light and dark pages."""


def diff_block(preview: Preview, wrong: int = -1) -> str:
    """Markdown: trained tokens on ``+`` lines (green), masked ones on plain lines, a wrong one on a ``-`` line (red); cut to what the asset page
    shows inline. A line that begins where the text has no line break begins with ↪. A masked line break that ends a trained line has no line."""
    lines: list[str] = []
    title = _title(preview)
    room = INLINE_CHARACTERS - len(title)
    starts = {at for at, _ in preview.origins}
    previous, ended = "", False
    for i, text in enumerate(preview.tokens):
        sign = "- " if i == wrong else "+ " if preview.weights and preview.weights[i] > 0 else "  "
        shown = _one_line(text)
        if sign == "  " and previous == "+ " and shown == "⏎" and i not in starts:
            previous, ended = sign, True
            continue
        begins = sign != previous or i in starts or ended or len(lines[-1]) + len(shown) > LINE_CHARACTERS
        room -= len(shown) + 4 * begins
        if room < 0:
            lines.append("  …")
            break
        if begins:
            lines.append(sign + ("" if ended or i in starts or not lines else "↪"))
        previous, ended = sign, shown.endswith("⏎")
        lines[-1] += shown
    body = "\n".join(lines)
    return f"{title}\n\n```diff\n{body}\n```"


def picture(preview: Preview, wrong: int = -1) -> str:
    """Markdown with an embedded SVG: each token a box, green where it is trained, red where it is wrong; a bar where a document begins."""
    shown = f" (first {SVG_TOKENS})" if len(preview.tokens) > SVG_TOKENS else ""
    bars = ", a bar begins a document" if preview.origins else ""
    red = ", red is wrong" if wrong >= 0 else ""
    return f"{_title(preview)}{shown}: green is trained, grey is masked{red}{bars}\n\n![row]({_svg(preview, wrong)})"


def _svg(preview: Preview, wrong: int) -> str:
    x, y, width, height = 6, 6, 760, 22
    starts = {at for at, _ in preview.origins}
    parts = []
    for i, text in enumerate(preview.tokens[:SVG_TOKENS]):
        label = _one_line(text)
        box = 8 * len(label) + 10
        if x + box > width:
            x, y = 6, y + height + 6
        fill, ink = WRONG if i == wrong else TRAINED if preview.weights and preview.weights[i] > 0 else MASKED
        if i in starts:
            parts.append(f'<rect x="{x - 3}" y="{y - 2}" width="2" height="{height + 4}" fill="#cf222e"/>')
        parts.append(f'<rect x="{x}" y="{y}" width="{box}" height="{height}" rx="3" fill="{fill}"/>')
        parts.append(f'<text x="{x + 5}" y="{y + 15}" font-family="monospace" font-size="13" fill="{ink}">{escape(label)}</text>')
        x += box + 3
    return embedded(parts, width + 12, y + height + 8)


def embedded(parts: Iterable[str], width: int, height: int) -> str:
    """SVG elements as a data URI for Markdown."""
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">{"".join(parts)}</svg>'
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _title(preview: Preview) -> str:
    """The title as one short line of Markdown; without the backslash, ``<think>`` would vanish as HTML."""
    title = _one_line(preview.title)
    return (title if len(title) <= TITLE_CHARACTERS else title[: TITLE_CHARACTERS - 1] + "…").replace("<", "\\<")


def _one_line(text: str) -> str:
    """`one_line`, safe in a code block too."""
    return one_line(text).replace("`", "ˋ")


def mixture_picture(shares: Mapping[str, float], weights: Mapping[str, float]) -> str:
    """Markdown with an embedded SVG: a bar for each domain, largest first.

    Args:
        shares: domain → its share of the tokens in the rows, 0 to 1.
        weights: domain → configured weight, in any unit; empty where none are.
    """
    total = sum(weights.values())
    bars, texts, lines = [], [], []
    for number, (name, share) in enumerate(sorted(shares.items(), key=lambda item: (-item[1], item[0]))):
        y = number * ROW
        wanted = weights[name] / total if name in weights and total else None
        shown = name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS - 1] + "…"
        figures = f"{share:.1%}" + (f", asked {wanted:.1%}" if wanted is not None else "")
        bars.append(_bar(0, y, max(1.0, BAR * share)))
        texts.append(f'<text x="{max(share, wanted or 0.0) * BAR + 8:.0f}" y="{y + 14}">{escape(f"{shown} {figures}")}</text>')
        if wanted is not None:
            lines.append(_bar(BAR * wanted - 1, y, 2))
    parts = [_group(FILL, bars), _group(ASKED, lines), _group(INK, texts)]
    note = "; red: what the weights ask for" if weights else ""
    return f"Share of the tokens{note}\n\n![mixture]({embedded(filter(None, parts), BAR + FIGURES, ROW * len(shares))})"


def lengths_picture(lengths: npt.NDArray[np.int64], unit: str, counted: str = "documents") -> str:
    """Markdown with an embedded SVG: a histogram, labelled with the shortest and longest length."""
    counts, _, wide = binned(lengths, BINS)
    step, top = WIDTH // len(counts), int(counts.max())
    heights = [max(round(HEIGHT * count / top), 1) if count else 0 for count in counts.tolist()]
    bars = "".join(f"M{at * step} {HEIGHT}v-{high}h{step - 1}v{high}" for at, high in enumerate(heights) if high)
    ends = (
        f'<text y="74">{int(lengths.min()):,}</text><text x="{step * len(counts)}" y="74" text-anchor="end">{int(lengths.max()):,}</text>'
    )
    parts = [f'<path fill="{FILL}" d="{bars}"/>', _group(INK, [ends])]
    scale = ", log scale" if wide else ""
    caption = f"{len(lengths):,} {counted}, median {int(np.median(lengths)):,} {unit}{scale}"
    return f"{caption}\n\n![lengths]({embedded(parts, WIDTH, HEIGHT + 18)})"


def _bar(x: float, y: int, width: float) -> str:
    return f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="18"/>'


def _group(colour: str, parts: list[str]) -> str:
    return f'<g fill="{colour}" font-family="sans-serif" font-size="13">{"".join(parts)}</g>' if parts else ""


SHOWN_FILES = 20
SHOWN_REFUSED, SHOWN_CHARACTERS = 10, 160
SHOWN_DOMAINS = 200
MEASURED_TOKENS = 200_000_000
"""Most tokens of a store whose lengths and trained tokens are counted by domain, and documents by engine, for every event."""
SHOWN_TOKENS, SHOWN_BEFORE = 600, 24
"""Tokens to show of a failing row, and of these before the wrong one."""
SHOWN_STRETCHES = 12


_FIRST = ("rows", "kept", "tokens", "fill_rate")
"""Figures that stand before all others."""


def store_metadata(workspace: Workspace, published: Published, **about: Any) -> dict[str, Any]:
    """Metadata of a materialization, in the order in which people read: rows, tokens, trained share, rejected records, domains, a row, mixture, further
    figures; last paths and hashes.

    Args:
        about: further facts for the group of hashes.
    """

    manifest = published.manifest
    figures = {key: value for key, value in {**manifest.counts, **manifest.metrics}.items() if isinstance(value, int | float)}
    numbers = {key: round(value, 4) for key, value in figures.items() if not key.removeprefix("dev_").startswith("share_")}
    rows = numbers.get("rows", numbers.get("kept"))
    share = numbers.pop("trained_fraction", None)
    if share is None and numbers.get("tokens") and "trained_tokens" in numbers:
        share = round(numbers["trained_tokens"] / numbers["tokens"], 4)
    chain = made_from(workspace, [published])
    realised, weights = shares(published)
    reasons = refused_counts(store for _, stores in chain for store in stores)
    return {
        **{name: numbers.pop(name) for name in _FIRST if name in numbers},
        **({"trained_share": share} if share is not None else {}),
        "refused_records": sum(reasons.values()),
        **({"refused_by_reason": dg.MetadataValue.json(reasons)} if reasons else {}),
        **({"found": dg.MetadataValue.json(manifest.counts["found"])} if manifest.counts.get("found") else {}),
        **_by_domain(published),
        **_preview(workspace, published),
        **({"mixture": dg.MetadataValue.md(mixture_picture(realised, weights))} if realised else {}),
        **(_rejected_records(published, chain) if reasons else {}),
        "report": dg.MetadataValue.md(report_link(manifest.asset, manifest.partition)),
        **_by_engine(workspace, published),
        **({"dagster/row_count": rows} if rows is not None else {}),
        **dict(sorted(numbers.items())),
        "bytes": sum(entry["bytes"] for entry in manifest.files.values()),
        "path": dg.MetadataValue.path(published.where),
        "content_hash": data_version(published),
        "version": dg.MetadataValue.json(
            {
                "build_key": manifest.build_key[:20],
                "reused": published.reused,
                **about,
            }
        ),
    }


def report_link(asset: str, partition: str) -> str:
    """Markdown: a link to the page of a store, and the command that writes it as a file."""
    return f"[open]({page_address(asset, partition)}) while `prep-assets view` runs\n\n`prep-assets report {arguments(asset, partition)}`"


def _rejected_records(published: Published, chain: Sequence[tuple[Asset, list[Published]]]) -> dict[str, Any]:
    """The first records rejected between the sources and this store."""

    first = [
        dg.TableRecord(
            {
                "record": one_line(rejection.id),
                "reason": one_line(f"{rejection.stage}/{rejection.reason}"),
                "detail": one_line(rejection.detail)[:SHOWN_CHARACTERS],
                "payload": one_line(rejection.payload)[:SHOWN_CHARACTERS],
                "store": store,
            }
        )
        for store, rejection in islice(refusals(chain), SHOWN_REFUSED)
    ]
    quarantine = {"quarantine": dg.MetadataValue.path(str(published.quarantine))} if published.quarantine else {}
    return {"refused": dg.MetadataValue.table(first), **quarantine}


def _by_domain(published: Published) -> dict[str, Any]:
    """A table of the domains and a histogram of document lengths; not for the largest stores, since masks are read."""
    if published.manifest.asset not in EVERY or published.manifest.counts.get("tokens", 0) > MEASURED_TOKENS:
        return {}

    try:
        row_streams = tables_of(published)
    except PrepAssetsError:
        return {}
    measured = [row for row in measure(row_streams) if row.documents]
    if not measured:
        return {}
    several, counted = len(row_streams) > 1, items(row_streams)
    records = [
        dg.TableRecord({"domain": row.domain, **({"stream": row.stream} if several else {}), row.unit: row.total,
                        "trained": f"{row.share:.1%}" if row.share is not None else "", counted: row.documents, "median": row.median,
                        "longest": row.longest})
        for row in measured[:SHOWN_DOMAINS]
    ]  # fmt: skip
    lengths = np.concatenate([stream.documents.lengths for stream in row_streams])
    return {
        "lengths": dg.MetadataValue.md(lengths_picture(lengths, row_streams[0].schema.unit, counted)),
        "by_domain": dg.MetadataValue.table(records),
    }


def _by_engine(workspace: Workspace, published: Published) -> dict[str, int]:
    """Documents by engine."""
    try:
        counts = by_engine(store_of(workspace, published), MEASURED_TOKENS) if published.manifest.asset in EVERY else {}
    except PrepAssetsError:
        return {}
    return {f"documents_by_{name}": count for name, count in counts.items()}


def data_version(published: Published) -> str:
    """The data version of a store, which depends only on its content."""
    return published.manifest.content_hash[:32]


def _preview(workspace: Workspace, published: Published) -> dict[str, Any]:
    if published.manifest.asset not in EVERY or not any(map(published.manifest.counts.get, ("rows", "kept", "examples"))):
        return {}
    try:
        shown = row(workspace, published).row
    except PrepAssetsError:
        return {}
    if isinstance(shown, Preview):
        return {"preview": dg.MetadataValue.md(diff_block(shown)), "preview_row": dg.MetadataValue.md(picture(shown))}
    # a source may have thousands of files, and metadata is a row of the event log
    return {
        "preview": dg.MetadataValue.json({key: value[:SHOWN_FILES] if isinstance(value, list) else value for key, value in shown.items()})
    }


def check_metadata(workspace: Workspace, asset: Asset, verdict: Verdict, partition: str, *, candidate: bool) -> dict[str, Any]:
    """Metadata of a check: its figures; where it fails, also the worst row with the wrong token in red, both derivations of it, and the page of
    the store or of its candidate, with both derivations of every mask."""
    if verdict.passed or verdict.worst is None:
        return dict(verdict.numbers)

    closer = {
        "look_closer": f"prep-assets report {arguments(asset.name, partition)}{' --candidate' * candidate}",
        "report": dg.MetadataValue.url(page_address(asset.name, partition, candidate=candidate)),
    }
    return {**_worst_row(workspace, asset, verdict.worst), **closer, **verdict.numbers}


def _worst_row(workspace: Workspace, asset: Asset, worst: Worst) -> dict[str, Any]:
    derivations, vocabulary = _derivations(worst), None
    with suppress(PrepAssetsError):
        vocabulary = workspace.vocabulary(workspace.family(FAMILIES[asset.family])) if worst.ids else None
    if vocabulary is None:
        return {"worst_row": dg.MetadataValue.text(f"{worst.where}: {worst.note}"), **derivations}
    first = max(0, worst.at - SHOWN_BEFORE)
    ids = worst.ids[first : first + SHOWN_TOKENS]
    texts = token_texts(vocabulary, ids)
    known = 0 <= worst.at < len(worst.ids)
    wrong = worst.at - first if known else -1
    token = f"token {worst.at:,} of {len(worst.ids):,}: {texts[wrong]!r}, id {ids[wrong]}" if known else ""
    weight = (
        f", loss weight {worst.weights[worst.at]:g}{' (not attended)' * (worst.weights[worst.at] < 0)}" if known and worst.weights else ""
    )
    shown = Preview(f"{worst.where}: {worst.note}", texts, worst.weights[first : first + SHOWN_TOKENS], tuple(range(len(texts))), ())
    return {
        **({"wrong_token": token + weight} if known else {}),
        "worst_row": dg.MetadataValue.md(diff_block(shown, wrong)),
        **derivations,
        "worst_row_tokens": dg.MetadataValue.md(picture(shown, wrong)),
    }


def _derivations(worst: Worst) -> dict[str, Any]:
    """A table of stored and derived stretches, from the first difference on."""
    if not worst.derivations:
        return {}
    differs = next((at for at, (stored, source) in enumerate(worst.derivations) if stored != source), 0)
    rows = [
        dg.TableRecord({"stored": one_line(stored)[:SHOWN_CHARACTERS], "from the source": one_line(source)[:SHOWN_CHARACTERS],
                        "": "equal" if stored == source else "differs"})
        for stored, source in worst.derivations[differs : differs + SHOWN_STRETCHES]
    ]  # fmt: skip
    return {"derivations": dg.MetadataValue.table(rows)}


# Events of a store: its materialization, evaluations of its checks, and the code version of its asset.
#
# Dagster compares versions of content, code and inputs to tell whether an asset is in sync, and tags them itself for declared outputs. Here are more
# materializations: missing upstream stores that a step builds, partitions of a range with their own versions, and stores built outside Dagster. So the tags
# are written here.

SHOWN_SUMMARY = 2000
UNRECORDED = {SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True}
"""Metadata of an output for which Dagster records no materialization."""


def materialization(
    instance: dg.DagsterInstance, site: Site, workspace: Workspace, step: Step, published: Published, metadata: Mapping[str, Any]
) -> dg.AssetMaterialization:
    """The materialization of a store, with the versions of its inputs."""
    tags = {
        "dagster/data_version": data_version(published),
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": code_version(workspace.plain, step.asset),
    }
    for name in step.asset.upstream(workspace):
        key = site.key(name)
        record = latest(instance, key, step.partition if EVERY[name].partitioned else "")
        if record and (version := recorded_version(record)):
            tags[f"dagster/input_data_version/{key.to_user_string()}"] = version
            tags[f"dagster/input_event_pointer/{key.to_user_string()}"] = str(record.storage_id)
    return dg.AssetMaterialization(
        site.key(step.asset.name),
        partition=step.partition or None,
        metadata=metadata,
        tags=tags,
    )


def evaluations(
    instance: dg.DagsterInstance, site: Site, workspace: Workspace, step: Step, verdicts: Mapping[str, Verdict], *, candidate: bool = False
) -> Iterator[dg.AssetCheckEvaluation]:
    """The evaluations of the checks of a store or of its candidate. They target the latest materialization; without it, Dagster ignores those of
    a partition."""
    key, warned = site.key(step.asset.name), [verdict for verdict in verdicts.values() if verdict.warns]
    recorded, apart = latest(instance, key, step.partition), warns(workspace, step.asset)
    target = recorded and AssetCheckEvaluationTargetMaterializationData(
        storage_id=recorded.storage_id, run_id=recorded.run_id, timestamp=recorded.timestamp
    )
    for name, verdict in verdicts.items():
        yield dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=name,
            passed=verdict.passed and (apart or not verdict.warns),
            severity=dg.AssetCheckSeverity.WARN if verdict.passed else dg.AssetCheckSeverity.ERROR,
            description=verdict.summary[:SHOWN_SUMMARY],
            metadata=check_metadata(workspace, step.asset, verdict, step.partition, candidate=candidate),
            blocking=True,
            partition=step.partition or None,
            target_materialization_data=target,
        )
    if apart and verdicts:
        yield dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=WARNINGS,
            passed=not warned,
            severity=dg.AssetCheckSeverity.WARN,
            blocking=False,
            description="; ".join(verdict.summary for verdict in warned)[:SHOWN_SUMMARY] or "every metric is inside its limits",
            partition=step.partition or None,
            target_materialization_data=target,
        )


WARNINGS = "warnings"
"""The check of limits that warn. It blocks nothing: automation waits for every blocking check that is not green, whatever its severity."""


def warns(workspace: Workspace, asset: Asset) -> bool:
    """Whether `quality.bounds` warns of a metric of an asset."""
    bounds = workspace.family(FAMILIES[asset.family]).quality.bounds
    return any(name.partition(".")[0] == asset.name and bound.warn is not None for name, bound in bounds.items())


def known_versions(
    instance: dg.DagsterInstance, site: Site, workspace: Workspace, asset: Asset, partitions: Sequence[str]
) -> dict[str, str]:
    """Partition → data version, for stores that Dagster has recorded with this code version and with checks that hold.

    With a freshness policy one partition is left out, so that every run is recorded.
    """
    if workspace.family(FAMILIES[asset.family]).refresh.fresh_for is not None:
        partitions = partitions[1:]
    if not partitions or not asset.checks:
        return {}
    key = site.key(asset.name)
    holding, latest = Counter[str](), dict[str, int]()
    checks = [dg.AssetCheckKey(key, check.name) for check in asset.checks]
    for info in instance.event_log_storage.get_asset_check_partition_info(checks, None, partitions if asset.partitioned else None):
        partition, storage_id = info.partition_key or "", info.latest_materialization_storage_id
        if info.latest_execution_status.value == "SUCCEEDED" and info.is_current and storage_id is not None:
            holding[partition] += 1
            latest[partition] = storage_id
    ids = [latest[partition] for partition in partitions if holding[partition] == len(checks)]
    if not ids:
        return {}
    code, versions = code_version(workspace.plain, asset), dict[str, str]()
    for record in instance.fetch_materializations(dg.AssetRecordsFilter(asset_key=key, storage_ids=ids), limit=len(ids)).records:
        tags = (record.asset_materialization.tags if record.asset_materialization else None) or {}
        if tags.get("dagster/code_version") == code:
            versions[record.partition_key or ""] = tags.get("dagster/data_version", "")
    return versions


def latest(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str) -> dg.EventLogRecord | None:
    """The record of the latest materialization of a store."""
    chosen = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition]) if partition else key
    return next(iter(instance.fetch_materializations(chosen, limit=1).records), None)


def recorded_version(record: dg.EventLogRecord | None) -> str:
    """The data version of a materialization; empty where there is none."""
    event = record.asset_materialization if record else None
    return ((event.tags if event else None) or {}).get("dagster/data_version", "")


FILES = ("tokenizer", "template")
"""Options that may name a file or folder, whose content counts."""


def code_version(workspace: Workspace, asset: Asset) -> str:
    """The asset's version, and a hash of the options that it depends on and of the files that these name.

    Options of domains are left out: a code version is of the whole asset, and a change of one domain must not mark the others as stale.
    `prep-assets status` tells them apart.
    """
    family = workspace.family(FAMILIES[asset.family])
    declared = family.model_dump(mode="json", by_alias=True, exclude={"domains"})
    options: dict[str, Any] = {}
    for option in asset.options:
        try:
            options[option] = reduce(getitem, option.split("."), declared)
        except KeyError:  # `younger`, and at its default
            continue
        if option in FILES:
            path = workspace.configs / str(options[option])
            files = [file for file in (sorted(path.iterdir()) if path.is_dir() else [path]) if file.is_file()]
            options[option] = [options[option], [[file.name, _hash(file, file.stat().st_size, file.stat().st_mtime_ns)] for file in files]]
    return f"{asset.version}-{digest(options)[:10]}" if options else asset.version


@bounded_cache("hashes of files", 4096)
def _hash(file: Path, size: int, changed: int) -> str:
    """sha256 of a file, cached by size and time of change."""
    return file_hash(file)


# Documents by engine: fast or reference.
#
# `RoutedEngine` sends a document to the reference by its characters alone, so the counts depend neither on block sizes nor on workers, and can be taken from an
# existing store. They do depend on the versions of both engines, which differ between machines: no manifest holds them, they are counted on demand.


def by_engine(store: Store, most: int) -> dict[str, int]:
    """Engine → number of documents; empty for stores without token streams, or with more than `most` tokens."""
    streams = list(store.streams().values()) if store.holds(TOKENS) else []
    documents = sum(map(len, streams))
    if not documents or sum(len(stream.columns["tokens"].values) for stream in streams) > most:
        return {}
    engines = store.workspace.engines(store.family)
    # text after a control token has its own engine if the tokenizer adds a space only at the start of documents
    engines_in_use = [
        engine.engine if isinstance(engine, ComparedEngine) else engine for engine in dict.fromkeys((engines.first, engines.rest))
    ]
    routed_engines = [engine for engine in engines_in_use if isinstance(engine, RoutedEngine)]
    if len(routed_engines) < len(engines_in_use):
        return {engines.reference.name: documents}
    blocks = (texts for stream in streams for texts in _texts(stream, store.vocabulary))
    for_reference = sum(int(np.any([engine.for_reference(texts) for engine in routed_engines], axis=0).sum()) for texts in blocks)
    return {engines.first.name: documents - for_reference, engines.reference.name: for_reference}


def _texts(stream: Table, vocabulary: Vocabulary) -> Iterator[list[str]]:
    """The texts of a stream's documents, with a line feed for every control token."""
    import pyarrow as pa

    control = set(vocabulary.control.values())
    table = pa.array(
        [b"\n" if number in control else token_bytes for number, token_bytes in enumerate(vocabulary.token_bytes or ())], pa.large_binary()
    )
    for block in stream.blocks(1 << 20) or ():
        decoded = table.take(pa.array(block.ids.astype(np.int64)))
        bounds, data = np.frombuffer(decoded.buffers()[1], np.int64), bytes(decoded.buffers()[2] or b"")
        ends = bounds[block.ends].tolist()
        yield [data[start:end].decode("utf-8", "ignore") for start, end in pairwise([0, *ends])]
