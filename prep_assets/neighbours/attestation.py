"""An attestation: what a store is made of and what was looked for in it, as JSON that can be signed, and as a page for people."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prep_assets import __version__
from prep_assets.config.loading import read_tombstones
from prep_assets.config.models import FAMILIES, Eval
from prep_assets.engine import Statuses
from prep_assets.errors import StoreError
from prep_assets.explain.report import made_from, rendered_page
from prep_assets.explain.where import contents, has_records
from prep_assets.graph.graph import assets_of
from prep_assets.neighbours.description import Chain, Description, describe
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.files import loads
from prep_assets.stores.manifest import described, digest, fault, signature_of
from prep_assets.stores.version_folders import Published

FORMAT = 1
PROVIDER = "to be stated by the provider"
"""Stands where only a person knows the answer."""
NOT_LOOKED_FOR = "not looked for"
PACKAGES = ("tokenizers", "transformers", "numpy", "pyarrow")
SIZES = ((10**9, "less than 1 billion tokens"), (10**13, "1 billion to 10 trillion tokens"))


def attestation(workspace: Workspace, asset: str, partition: str = "") -> dict[str, Any]:
    """What is known of a store that is current and whose checks hold, signed if there is a key.

    Raises:
        StoreError: there is no store; it is out of date; or its checks do not hold.
    """
    description, published = describe(workspace, asset, partition)
    chain = made_from(workspace, [published])
    family, judged = workspace.family(FAMILIES[chain[-1][0].family]), _judgements(workspace, chain, "quality")
    body: dict[str, Any] = {
        "format": FORMAT,
        "date": datetime.now(UTC).date().isoformat(),
        "asset": published.manifest.asset,
        "partition": published.manifest.partition,
        "store": {
            **description.hashes,
            "bytes": description.bytes,
            "counts": dict(description.counts),
            "metrics": {name: round(value, 6) for name, value in description.metrics.items()},
        },
        "domains": [
            {
                "name": name,
                "licence": licence or family.licence or PROVIDER,
                "addresses": list(description.addresses[name]),
                "redacted": list(family.domains[name].redact),
            }
            for name, licence in description.licences.items()
        ],
        "sources": [
            {"domain": one.domain, "file": one.name, "rows": one.rows, "bytes": one.bytes, "sha256": one.sha256, "held_out": one.held_out}
            for one in description.sources
        ],
        "forgotten": _forgotten(workspace, chain),
        "held_out_texts": list(_leaks(workspace, _judgements(workspace, chain, "leaks"))) or NOT_LOOKED_FOR,
        "private_data": list(_quality(judged, "private_data")) or NOT_LOOKED_FOR,
        "quality": list(_quality(judged)) or NOT_LOOKED_FOR,
        "refused": dict(description.refused),
        "trained": list(masks_in_words(chain)),
        "checks": [
            {"store": store.manifest.label, "check": name, "holds": result.passed, "says": result.summary}
            for _, stores in chain
            for store in stores
            for name, result in (store.results or {}).items()
        ],
        "made_from": dict(description.made_from),
        "made_with": {
            "prep-assets": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in PACKAGES},
        },
    }
    body["public_summary"] = [
        {"section": section, "field": field, "text": text} for section, field, text in public_summary(body, description)
    ]
    return {**body, "digest": digest(body), "signature": signature_of(digest(body))}


def _forgotten(workspace: Workspace, chain: Chain) -> dict[str, Any]:
    """What was forgotten, and how many of these records the stores still hold by id; each is searched whole."""
    families = {asset.family for asset, _ in chain}
    stones = [stone for stone in read_tombstones(workspace.configs) if stone.family in families]
    wanted, left, searched = {(stone.domain, stone.record) for stone in stones}, 0, 0
    for _, stores in chain if stones else ():
        for store in filter(has_records, stores):
            searched += 1
            left += sum((record.domain or store.manifest.partition, record.id) in wanted for record in contents(workspace, store))
    records = [{"domain": stone.domain, "record": stone.record, "sha256": stone.digest, "reason": stone.reason} for stone in stones]
    return {"records": records, "stores_searched": searched, "still_held": left}


def _judgements(workspace: Workspace, chain: Chain, stage: str) -> list[Published]:
    """The stores of quality steps, or of the search for held-out texts, on each domain that a store is made of.

    Raises:
        StoreError: one is out of date.
    """
    statuses, stores = Statuses(workspace), list[Published]()
    own = chain[-1][0].family
    for asset, raw in chain:
        judging = assets_of(workspace).get(f"{asset.family}_{stage}")
        for store in raw if judging and asset.name == f"{own}_raw" else ():
            assert judging is not None
            status = statuses.at(judging, store.manifest.partition)
            label = workspace.place(judging.name, store.manifest.partition).label
            if status.published is None or status.state != "current":
                raise StoreError(f"{label} is {status.state}: {status.why}. Build it:\n  prep-assets build {judging.name}")
            stores.append(status.published)
    return stores


def _quality(stores: Sequence[Published], step: str = "") -> Iterator[dict[str, Any]]:
    """What a step, or each of them, found in each store that it judged."""
    for store in stores:
        steps = [name for name, _ in store.manifest.recipe["steps"] if name.startswith(step)]
        found = {
            what: count for what, count in store.manifest.counts["found"].items() if what.startswith(tuple(f"{name}/" for name in steps))
        }
        for what, count in (found or {f"{', '.join(steps)}: nothing": 0}).items() if steps else ():
            yield {"store": store.manifest.label, "examples": store.manifest.counts["examples"], "what": what, "found": count}


def _leaks(workspace: Workspace, stores: Sequence[Published]) -> Iterator[dict[str, Any]]:
    """How many examples hold texts of which held-out data set, in each store that was searched."""
    rules = ", ".join(workspace.family(Eval).rules) if stores else ""
    for store in stores:
        counts, policy = store.manifest.counts, store.manifest.recipe["policy"]
        for name, count in counts["by_set"].items() or {"nothing": 0}.items():
            yield {
                "store": store.manifest.label,
                "examples": counts["examples"],
                "what": f"{name} (rules {rules}; policy {policy})",
                "found": count,
            }


def masks_in_words(chain: Chain) -> Iterator[str]:
    """Which tokens are trained, in sentences, of each store with a mask policy."""
    for _, stores in chain:
        for store in stores:
            recipe, counts = store.manifest.recipe, store.manifest.counts
            if "mask" in recipe:
                of_roles = recipe["mask"]
                trained, masked = ([role for role, what in of_roles.items() if what == action] for action in ("train", "mask"))
                default = "trained" if recipe["mask_default"] == "train" else "not trained"
                parts = [f"turns of {', '.join(trained) or 'nobody'} are trained", f"those of {', '.join(masked) or 'nobody'} are not"]
                parts.append(f"any other role is {default}")
                parts += [
                    f"{what} {'is' if recipe[key] else 'is not'} trained"
                    for key, what in (
                        ("train_thinking", "reasoning"),
                        ("train_tool_calls", "a tool call"),
                        ("train_headers", "a turn's header"),
                    )
                    if key in recipe
                ]
                yield f"{store.manifest.label}: {'; '.join(parts)}"
            if "trained_tokens" in counts and counts.get("tokens"):
                share = counts["trained_tokens"] / counts["tokens"]
                yield f"{store.manifest.label}: {counts['trained_tokens']:,} of {counts['tokens']:,} tokens are trained ({share:.1%})"


def public_summary(body: Mapping[str, Any], description: Description) -> Iterator[tuple[str, str, str]]:
    """Section, field and text of the European Commission's template for the public summary of training content (AI Act, article 53(1)(d); July 2025), as
    far as a configuration knows them."""
    tokens = description.counts.get("tokens")
    size = next((name for most, name in SIZES if tokens < most), "more than 10 trillion tokens") if tokens else PROVIDER
    public = [
        f"{domain['name']}: {', '.join(domain['addresses'])} ({domain['licence']})" for domain in body["domains"] if domain["addresses"]
    ]
    local = [domain["name"] for domain in body["domains"] if not domain["addresses"]]
    redacted = [f"{domain['name']}: {', '.join(domain['redacted'])} replaced" for domain in body["domains"] if domain["redacted"]]
    steps = [f"{one['store']}: {one['what']}: {one['found']:,}" for one in body["quality"]] if isinstance(body["quality"], list) else []
    forgotten = len(body["forgotten"]["records"])
    yield "1.1 Provider", "name, contact, representative", PROVIDER
    yield "1.2 Model", "names, dates, dependencies", PROVIDER
    yield "1.3 Modalities", "text", f"{tokens:,} tokens in this data set: {size}" if tokens else PROVIDER
    yield "1.3 Modalities", "latest date of acquisition, languages, characteristics", PROVIDER
    yield "2.1 Publicly available data sets", "names and links", "; ".join(public) or "none is named in the configuration"
    yield "2.2 Private data sets of third parties", "licensed, or obtained otherwise", PROVIDER
    yield "2.3 Data crawled and scraped", "crawlers, period, domains", PROVIDER
    yield "2.4 User data", "services and modalities", PROVIDER
    yield "2.5 Synthetic data", "models that generated it", PROVIDER
    yield "2.6 Other sources", "to be assigned to 2.1 to 2.5", f"files on the provider's machines: {', '.join(local)}" if local else "none"
    yield "3.1 Reservations of rights", "measures", f"{forgotten:,} records were taken out for good; others: {PROVIDER}"
    yield "3.2 Removal of illegal content", "measures", "; ".join(steps) or NOT_LOOKED_FOR
    yield "3.3 Other processing", "private data", "; ".join(redacted) or "none is replaced"


def write_attestation(folder: Path, body: Mapping[str, Any]) -> list[Path]:
    """Write an attestation as JSON and as a page; return their paths."""
    name = "-".join(filter(None, (body["asset"], body["partition"])))
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.attestation.{suffix}" for suffix in ("json", "html")]
    signed = described(body["signature"]) if body["signature"] else "not signed: PREP_ASSETS_SIGNING_KEY names no key"
    texts = json.dumps(body, indent=1, ensure_ascii=False) + "\n", rendered_page("attestation", body=body, signed=signed, provider=PROVIDER)
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, "utf-8")
    return paths


def faults_of(workspace: Workspace, path: Path) -> list[str]:
    """What is wrong with an attestation, and what of it the stores do not say any more; empty if it holds.

    Raises:
        StoreError: the file is no attestation.
    """
    try:
        body: dict[str, Any] = loads(path.read_bytes())
        claimed, signature = body.pop("digest"), body.pop("signature")
        content, label = body["store"]["content"], (body["asset"], body["partition"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} is no attestation: {error}") from error
    if (actual := digest(body)) != claimed:
        return [f"what it says has the digest {actual[:16]}…, it claims {str(claimed)[:16]}…: it was edited"]
    faults = [wrong] if (wrong := fault(actual, signature)) else []
    stores: Sequence[tuple[tuple[str, str], str]] = [(label, content), *((_named(name), sha) for name, sha in body["made_from"].items())]
    for (asset, partition), expected in stores:
        try:
            published = workspace.place(asset, partition).current()
            if published is None:
                raise StoreError("it has no store")
            if (holds := published.manifest.content_hash) != expected:
                raise StoreError(f"it holds {holds[:16]}…, {expected[:16]}… is attested")
            published.verify()
        except StoreError as error:
            faults.append(f"{workspace.place(asset, partition).label}: {error}")
    return faults


def _named(label: str) -> tuple[str, str]:
    """Asset and partition of ``sft_tokens[chats]``."""
    asset, _, partition = label.removesuffix("]").partition("[")
    return asset, partition
