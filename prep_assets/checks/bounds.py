"""Bounds of a store's metrics, absolute or against the last good build: `quality.bounds`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from prep_assets.config.family import Limits
from prep_assets.pipeline.asset import Asset, Store, token_streams
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.version_folders import Published


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
    if lengths := [stream.lengths for stream in token_streams(asset, published).values() if len(stream)]:
        median, p99, longest = np.quantile(np.concatenate(lengths), (0.5, 0.99, 1), method="inverted_cdf").tolist()
        metrics |= {"length_median": median, "length_p99": p99, "length_longest": longest}
    return metrics


def with_bounds(store: Store, verdict: Verdict) -> Verdict:
    """A verdict that holds, with what the bounds of the store's metrics say: it fails, warns, or holds as it did."""
    bounds = store.family.quality.bounds
    own = {name.partition(".")[2]: bound for name, bound in bounds.items() if name.partition(".")[0] == store.asset.name}
    if not own or not verdict.passed:
        return verdict
    metrics, last = metrics_of(store.asset, store.published), _last_good(store)
    known = metrics_of(store.asset, last) if last else {}
    blocked, warned, numbers = list[str](), list[str](), dict(verdict.numbers)
    for name, bound in own.items():
        value = metrics.get(name, 0.0 if name.startswith("refused.") and "refused_share" in metrics else None)
        if value is None:
            blocked.append(f"quality.bounds: {store.asset.name} has no metric {name!r}; it has {', '.join(sorted(metrics))}")
            continue
        numbers[name] = value
        for limits, broken in ((bound.block, blocked), (bound.warn, warned)):
            if limits is not None:
                broken += _broken(limits, name, value, known)
                if broken:
                    break
    if blocked:
        fault = f"{'; '.join(blocked)}. Look for the cause, or change quality.bounds"
        return Verdict(False, fault, numbers, Worst("manifest", fault))
    if warned:
        return replace(verdict, summary=f"{verdict.summary}. Warning: {'; '.join(warned)}", numbers=numbers, warns=True)
    return replace(verdict, numbers=numbers)


def _broken(limits: Limits, name: str, value: float, last: Mapping[str, float]) -> Iterator[str]:
    """The bounds that a metric is outside of."""
    if limits.min is not None and value < limits.min:
        yield f"{name} is {value:,.6g}, at least {limits.min:,.6g} is wanted"
    if limits.max is not None and value > limits.max:
        yield f"{name} is {value:,.6g}, at most {limits.max:,.6g} is wanted"
    if limits.change is not None and name in last and abs(value - last[name]) > limits.change * abs(last[name]):
        yield f"{name} was {last[name]:,.6g} in the last good build and is {value:,.6g}: a change of at most {limits.change:.1%} is wanted"


def _last_good(store: Store) -> Published | None:
    """The version that is published: the last one whose checks held. `None` for the first one."""
    published = store.workspace.place(store.asset.name, store.partition).current()
    return None if published is None or published.version == store.published.version else published
