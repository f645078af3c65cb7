"""Rules of the configuration that change no byte: bounds of a store's metrics, absolute or against the last good build, and the most rejections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets import plugins
from prep_assets.checks.licences import forbidden, licence_rules
from prep_assets.config.family import Bound, Family, Limits
from prep_assets.errors import StoreError, nearest
from prep_assets.pipeline.asset import Asset, Store, open_streams
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import MEDIA
from prep_assets.schemas.registry import schema_code
from prep_assets.stores.lists import declared
from prep_assets.stores.manifest import Result, Ruled, digest
from prep_assets.stores.table import TOKENS
from prep_assets.stores.version_folders import Published

ACCOUNTING = "accounting"
BOUNDED = (ACCOUNTING, "not_blocked", "no_leaks", "mixture")
"""Checks of which the first of an asset holds its stores to the rules."""


def metrics_of(asset: Asset, published: Published) -> dict[str, float]:
    """Every metric of a store: its figures, and shares of them.

    Beside counts and metrics of the manifest: `bytes`, `bytes_per_token`, `tokens_per_record`, `trained_share`, `refused_share`,
    ``refused.<stage>/<reason>``, the share of one reason; and of tokens a record `length_median`, `length_p99` and `length_longest`.
    """
    manifest = published.manifest
    counts = manifest.counts
    metrics = {name: value for name, value in {**counts, **manifest.metrics}.items() if isinstance(value, int | float)}
    metrics["bytes"] = sum(entry["bytes"] for entry in manifest.files.values())
    tokens, read, refused = counts.get("tokens"), counts.get("read"), counts.get("refused")
    records = counts.get("kept") or counts.get("rows")
    if tokens:
        metrics |= {"bytes_per_token": metrics["bytes"] / tokens, **({"tokens_per_record": tokens / records} if records else {})}
        metrics |= {"trained_share": counts["trained_tokens"] / tokens} if "trained_tokens" in counts else {}
    if read and refused is not None:
        metrics["refused_share"] = sum(refused.values()) / read
        metrics |= {f"refused.{reason}": count / read for reason, count in refused.items()}
    if lengths := [table.lengths for table in open_streams(asset, published).values() if len(table)] if asset.holds(TOKENS) else []:
        median, p99, longest = np.quantile(np.concatenate(lengths), (0.5, 0.99, 1), method="inverted_cdf").tolist()
        metrics |= {"length_median": median, "length_p99": p99, "length_longest": longest}
    return metrics


MOST_ALIKE = 0.5
"""The share of a domain's examples that may be dropped because they are like others, where no bound says more or less."""


def rules_of(asset: Asset, family: Family) -> dict[str, Any]:
    """The rules of the configuration that an asset's stores are held to: `quality.bounds` of its metrics, `quality.max_refused`, and
    `quality.licences` of rows."""
    bounds = {name.partition(".")[2]: bound for name, bound in family.quality.bounds.items() if name.partition(".")[0] == asset.name}
    if asset.stage == "quality":
        for name in (f"dropped.{reason}" for reason in plugins.of_extension("verdicts", "quality").drops_alike(family)):
            said = bounds.get(name, Bound(block=Limits(max=MOST_ALIKE)))
            bounds[name] = said if said.block else said.model_copy(update={"block": Limits(max=MOST_ALIKE)})  # a warning allows nothing
    most = family.quality.max_refused if any(check.name == ACCOUNTING for check in asset.checks) else {}
    licences = licence_rules(asset, family)
    return {"bounds": bounds, "max_refused": most, **licences} if bounds or most or licences else {}


def with_rules(store: Store, verdict: Verdict) -> Verdict:
    """A verdict that holds, with what the rules say of the store: it fails, warns, or holds as it did."""
    rules = rules_of(store.asset, store.family)
    if not rules or not verdict.passed:
        return verdict
    ruled = Ruled(_rules_hash(rules), verdict.summary, verdict.numbers)
    blocked, warned, numbers = list[str](), list[str](), dict(verdict.numbers)
    if rules["bounds"]:
        last = _last_good(store)
        metrics, known = metrics_of(store.asset, store.published), metrics_of(store.asset, last) if last else {}
    for name, bound in rules["bounds"].items():
        value = metrics.get(name, 0.0 if _absent_share(name, metrics, store) else None)
        if value is None:
            near = f"{nearest(name, metrics) or '.'} It has {', '.join(sorted(metrics))}"
            blocked.append(f"quality.bounds: {store.asset.name} has no metric {name!r}{near}")
            continue
        numbers[name] = value
        for limits, broken in ((bound.block, blocked), (bound.warn, warned)):
            if limits is not None:
                broken += _broken(limits, name, value, known)
                if broken:
                    break
    faults = [f"{'; '.join(blocked)}. Look for the cause, or change quality.bounds of {store.asset.name}"] if blocked else []
    if over := _too_many_refused(store, rules["max_refused"]):
        faults.append(f"{'; '.join(over)}. Look at them with prep-assets quarantine {store.asset.name}")
    if "licences" in rules and (fault := forbidden(store, rules["licences"]["allow"], numbers)):
        faults.append(fault)
    if faults:
        return Verdict(False, ". ".join([*faults, verdict.summary]), numbers, Worst("manifest", ". ".join(faults)), ruled=ruled)
    if warned:
        summary = f"{verdict.summary}. Warning: {'; '.join(warned)}"
        return replace(verdict, summary=summary, numbers=numbers, warns=True, ruled=ruled)
    return replace(verdict, numbers=numbers, ruled=ruled)


def judged_anew(
    workspace: Workspace, asset: Asset, published: Published, recorded: Mapping[str, Result], *, always: bool = False
) -> dict[str, Result]:
    """The recorded results of a store's checks, judged by the rules that the configuration has now, where others judged it then.

    Args:
        always: judge by the same rules too: another version may be the last good one now.
    """
    results = dict(recorded)
    name = next((check.name for check in asset.checks if check.name in BOUNDED), None)
    if name is None or (old := results.get(name)) is None or not (old.passed or old.ruled):
        return results
    store = Store(workspace, asset, published)
    rules = rules_of(asset, store.family)
    if always or (old.ruled.rules if old.ruled else "") != (_rules_hash(rules) if rules else ""):
        alone = Verdict(True, old.ruled.summary, old.ruled.numbers) if old.ruled else Verdict(True, old.summary, old.numbers)
        results[name] = as_result(with_rules(store, alone))
    return results


def as_result(verdict: Verdict) -> Result:
    """What is recorded of a verdict."""
    return Result(*(getattr(verdict, field) for field in Result._fields))


def only_rules_fail(results: Mapping[str, Result]) -> bool:
    """Whether every check that fails would hold without rules: another build of the same store changes nothing about it."""
    return all(result.passed or result.ruled for result in results.values())


def _rules_hash(rules: Mapping[str, Any]) -> str:
    return digest({**rules, "bounds": {name: bound.model_dump() for name, bound in rules["bounds"].items()}})


STAGES = (
    "schema",
    *plugins.entries("verdicts"),
    "records",
    "deduplicate",
    "decontaminate",
    "render",
    "reasoning",
    "tokenize",
    *declared(),
    "pretrain",
)
"""Of rejections, before the slash, beside those that a family has."""


@cache
def _slugs() -> frozenset[str]:
    """Every short text of the code that names reasons, among them all reasons that it gives."""
    package = Path(__file__).parents[1]
    folders = ("data", "pipeline", "quality", "schemas", "text", "extensions/*")
    texts = (path.read_text("utf-8") for folder in folders for path in package.glob(f"{folder}/*.py"))
    slugs = {slug for text in texts for slug in re.findall(r'f?"([a-z][a-z_]*(?:\{kind\}|\{region\.kind\})?[a-z_]*)"', text)}
    media = [re.sub(r"\{.*\}", kind, slug) for slug in slugs if "{" in slug for kind in MEDIA]
    return frozenset(slug for slug in (*slugs, *media) if "{" not in slug)


def unknown_reason(family: Family) -> str:
    """Which reason of the rules no record can be rejected for; ``""`` if none. Code of one's own gives reasons that nobody knows before it runs."""
    quality, stages = family.quality, (*STAGES, *family.stages)
    named = [("max_refused", name, name) for name in quality.max_refused if name != "*"]
    for name in quality.bounds:
        asset, _, metric = name.partition(".")
        kind, _, reason = metric.partition(".")
        if (kind == "refused" and reason) or (kind == "dropped" and reason and asset.endswith("_quality")):
            named.append(("bounds", name, reason if kind == "refused" else f"quality/{reason}"))
    for key, name, where in named:
        stage, _, reason = where.partition("/")
        if stage not in stages and stage not in _slugs():
            return f"quality.{key}.{name}: no stage {stage!r} rejects records{nearest(stage, stages) or '.'} There are: {', '.join(stages)}"
        if reason not in _slugs() and not _has_own_code(family, stage):
            return f"quality.{key}.{name}: no record is rejected for {reason!r}{nearest(reason, sorted(_slugs()))}"
    return ""


def _has_own_code(family: Family, stage: str) -> bool:
    """Whether code of users or of other packages rejects records at a stage."""
    if stage == "schema":
        return any(schema_code(domain.schema_name) for domain in family.domains.values())
    return stage == "quality" and bool(plugins.of_extension("verdicts", "quality").runs_own_code(family))


def _absent_share(name: str, metrics: Mapping[str, float], store: Store) -> bool:
    """Whether a metric is the share of a reason, or of a text of a note, that no record has."""
    if name.startswith("refused."):
        return "refused_share" in metrics
    if store.asset.stage != "quality":
        return False
    notes = {each.rpartition(".")[0] for each in metrics}
    return name.startswith("dropped.") or name.rpartition(".")[0] in notes


def _too_many_refused(store: Store, most: Mapping[str, float]) -> list[str]:
    """Which shares of `quality.max_refused` a store exceeds."""
    read, refused = store.manifest.counts.get("read"), store.manifest.counts.get("refused", {})
    if not most or read is None:  # what is packed or merged rejects no record
        return []
    shares = {"*": sum(refused.values()), **refused}
    return [
        f"{shares[reason]:,} of {read:,} records are refused for {'any reason' if reason == '*' else reason}, "
        f"{shares[reason] / read:.1%}, and quality.max_refused allows {share:.1%}"
        for reason, share in most.items()
        if shares.get(reason, 0) > share * read
    ]


def _broken(limits: Limits, name: str, value: float, last: Mapping[str, float]) -> Iterator[str]:
    """The bounds that a metric is outside of."""
    if limits.min is not None and value < limits.min:
        yield f"{name} is {value:,.6g}, at least {limits.min:,.6g} is wanted"
    if limits.max is not None and value > limits.max:
        yield f"{name} is {value:,.6g}, at most {limits.max:,.6g} is wanted"
    if limits.change is not None and name in last and abs(value - last[name]) > limits.change * abs(last[name]):
        yield f"{name} was {last[name]:,.6g} in the last good build and is {value:,.6g}: a change of at most {limits.change:.1%} is wanted"


FEWER = 0.1
"""The share of records that a new version may lose without a word, where no rule bounds what is kept."""


def keeps_fewer(store: Store) -> str:
    """Say that a store that is not published yet keeps a tenth less than the last good build; ``""`` if it does not, or if a rule bounds what is kept."""
    last, kept = _last_good(store), store.manifest.counts.get("kept")
    before = last.manifest.counts.get("kept") if last else None
    if "kept" in rules_of(store.asset, store.family).get("bounds", {}) or kept is None or not before or kept > (1 - FEWER) * before:
        return ""
    return f"{kept:,} records are kept, {before - kept:,} fewer than the {before:,} of the last good build"


def _last_good(store: Store) -> Published | None:
    """The version that is published: the last one whose checks held. `None` for the first one, and where it is damaged."""
    try:
        published = store.workspace.place(store.asset.name, store.partition).current()
    except StoreError:
        return None
    return None if published is None or published.version == store.published.version else published
