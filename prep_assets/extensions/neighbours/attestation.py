"""`attest`: what a data set is made of and what was looked for in it, as a signed document, and whether a store still is what one says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prep_assets.config.family import Family
from prep_assets.config.loading import read_tombstones, read_yaml
from prep_assets.config.models import FAMILIES, Eval, Pretrain, Sft
from prep_assets.errors import StoreError
from prep_assets.extensions.explain.figures import made_from, refused_counts
from prep_assets.extensions.explain.html import render_template
from prep_assets.extensions.neighbours.description import Chain, Description, describe, own_stores
from prep_assets.extensions.neighbours.forget import forgotten_rows
from prep_assets.graph.graph import asset_named
from prep_assets.pipeline.sources import read_sources
from prep_assets.pipeline.workspace import Workspace, arguments
from prep_assets.samples import Prompt
from prep_assets.stores.files import installed_version, loads
from prep_assets.stores.manifest import Manifest, Result, described, digest, fault, signature_of
from prep_assets.stores.version_folders import Published
from prep_assets.version import __version__

FORMAT = 1
"""Version of the document."""
NOT_LOOKED_FOR = "not looked for"
NOT_SAID = "not said in the configuration"
NO_ADDRESS = f"local files; where they came from is {NOT_SAID}"
TO_STATE = "to be stated by the provider"
"""What stands where nobody knows: a person fills in the last one."""
IDENTITY = ("content_hash", "build_key", "manifest_hash")
"""What `check` compares with the store of today."""


def attest(workspace: Workspace, asset: str, partition: str = "", *, key: str = "") -> dict[str, Any]:
    """Attest the current store of an asset.

    Args:
        key: a private key, its file or its PEM text, in place of ``PREP_ASSETS_SIGNING_KEY``.

    Returns:
        ``attestation``, its ``sha256``, and the ``signature`` of that, ``""`` where there is no key. Equal stores and configurations give equal documents.

    Raises:
        StoreError: there is no store, it is out of date or not what its manifest says, one of its checks does not hold, or it holds what is forgotten.
    """
    workspace = workspace.plain
    description, published = describe(workspace, asset, partition)
    published.verify()
    kind = asset_named(asset, workspace).family
    family, chain = workspace.family(FAMILIES[kind]), made_from(workspace, [published])
    own = own_stores(chain, published, kind)
    content = {
        "format": FORMAT,
        "store": _store(description, published),
        "sources": _sources(description),
        "opt_outs": _opt_outs(workspace, kind, description, own),
        "contamination": _contamination(own, chain),
        "private_data": _private_data(family, description, own),
        "quality": [_steps(store) for store in _of_stage(own, "quality")] or NOT_LOOKED_FOR,
        "refused": dict(description.refused),
        "trained": trained_in_words(family),
        "checks": [
            {"store": store.manifest.label, "version": store.version, "check": name, "holds": result.passed, "says": result.summary}
            for _, stores in chain
            for store in stores
            for name, result in (store.results or {"any": Result(False, NOT_LOOKED_FOR)}).items()
        ],
        "versions": _versions(description, chain),
        "lineage": [{**_identity(store.manifest), "version": store.version} for _, stores in chain for store in stores],
    }
    content["eu_summary"] = _eu_summary(content, family)
    content["california_summary"] = _california_summary(content, family)
    sha256 = digest(content)
    return {"attestation": content, "sha256": sha256, "signature": signature_of(sha256, key)}


def text_of(document: Mapping[str, Any]) -> str:
    """A document as it is written: JSON with sorted keys."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def signed_by(signature: str) -> str:
    """The whole key of a signature, for a reader who compares it with one that he was given."""
    return f"signed by the ed25519 key {signature.split(':')[1]}" if signature else "not signed"


def check(workspace: Workspace, path: Path, *, key: str = "") -> str:
    """Verify the signature of a document, and that the store which it names and those above it are what it says, to the byte.

    Args:
        key: public keys that are trusted, in place of ``PREP_ASSETS_TRUSTED_KEYS``.

    Returns:
        What holds, in a sentence.

    Raises:
        StoreError: it is no attestation, unsigned, or altered; or the store is gone, another one, or damaged.
    """
    try:
        document = loads(path.read_bytes())
        content, signature = document["attestation"], str(document["signature"])
        attested = content["store"]
        asset, partition, sha256 = attested["asset"], attested["domain"], digest(content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is no attestation ({type(error).__name__}: {error}). Write one with: prep-assets attest ASSET") from error
    if sha256 != document.get("sha256"):
        raise StoreError(
            f"{path} was altered: what it says has the sha256 {sha256[:16]}…, and it names {str(document.get('sha256'))[:16]}…"
        )
    again = f"prep-assets attest {arguments(asset, partition)}"
    if not signature:
        raise StoreError(f"{path} is not signed, so anybody may have written it. Write it with a key:\n  {again} --key KEY.pem")
    if wrong := fault(sha256, signature, key):
        raise StoreError(f"{path}: {wrong}. Ask who gave it to you, or write a new one:\n  {again}")
    published = workspace.published(asset_named(asset, workspace).name, partition)
    if published is None:
        raise StoreError(f"{path} attests {attested['name']}, and {workspace.where} has no such store")
    today = _identity(published.manifest)
    differing = [
        f"{name} is attested as {str(attested.get(name))[:16]}… and is {today[name][:16]}…"
        for name in IDENTITY
        if attested.get(name) != today[name]
    ]
    if differing:
        raise StoreError(f"{path} attests another {attested['name']} than is current: {'; '.join(differing)}. Write a new one:\n  {again}")
    for each in content["lineage"]:  # the store itself is the last of them
        above, _, domain = each["store"].removesuffix("]").partition("[")
        store = workspace.published(above, domain)
        if store is None or store.manifest.signed_digest != each["manifest_hash"]:
            now = "is not there" if store is None else f"has the manifest hash {store.manifest.signed_digest[:16]}…"
            raise StoreError(
                f"{path}: {each['store']}, of which {attested['name']} is made, {now}; attested is {each['manifest_hash'][:16]}…"
            )
        store.verify()
    return f"{attested['name']} is the store that {path.name} attests, {signed_by(signature) if key else described(signature)}"


# What a document says.


def _identity(manifest: Manifest) -> dict[str, str]:
    return {
        "store": manifest.label,
        "content_hash": manifest.content_hash,
        "build_key": manifest.build_key,
        "manifest_hash": manifest.signed_digest,
    }


def _store(description: Description, published: Published) -> dict[str, Any]:
    manifest = published.manifest
    return {
        **_identity(manifest),
        "name": description.name,
        "asset": description.asset,
        "domain": manifest.partition,
        "version": published.version,
        "what": description.summary,
        "signed": signed_by(manifest.signature),
        "licence": ", ".join(description.licence) or NOT_SAID,
        **({"rows_by_licence": dict(description.licence_rows)} if description.licence_rows else {}),
        "counts": dict(description.counts),
        "files": {name: {"bytes": size, "sha256": sha256} for name, (size, sha256) in description.files.items()},
    }


def _sources(description: Description) -> list[dict[str, Any]]:
    return [
        {
            "domain": domain,
            "licence": licence or NOT_SAID,
            "addresses": list(description.addresses[domain]) or [NO_ADDRESS],
            "files": [
                {"name": each.name, "bytes": each.bytes, "records": each.rows, "sha256": each.sha256, "held_out": each.held_out}
                for each in description.sources
                if each.domain == domain
            ],
        }
        for domain, licence in description.licences.items()
    ]


def _opt_outs(workspace: Workspace, family: str, description: Description, own: Chain) -> dict[str, Any] | str:
    """What was forgotten, and the search that finds none of it."""
    tombstones = [each for each in read_tombstones(workspace.configs) if each.family == family and each.domain in description.licences]
    if not tombstones:
        return "no record was forgotten"
    search = forgotten_rows(workspace, tombstones, [store for _, stores in own for store in stores])
    if search.left:
        left = "; ".join(f"{label}: {', '.join(ids[:5])}" for label, ids in search.left.items())
        raise StoreError(f"{description.name} is not attested: what is forgotten, or the same text, is still in {left}. Forget those too")
    return {
        "forgotten": [{"domain": each.domain, "record": each.record, "digest": each.digest, "reason": each.reason} for each in tombstones],
        "rows_in_sources": len(search.rows),
        "searched": list(search.searched),
        "found": 0,
    }


def _of_stage(chain: Chain, stage: str) -> list[Published]:
    return [store for asset, stores in chain if asset.stage == stage for store in stores]


def _of_domain(chain: Chain, domain: str) -> list[Published]:
    return [store for _, stores in chain for store in stores if store.manifest.partition == domain]


def _contamination(own: Chain, chain: Chain) -> list[dict[str, Any]] | str:
    """Which held-out texts were searched for, by which rules, what was found, and what became of it."""
    passages = next((stores[0].manifest for asset, stores in chain if asset.name == "eval_passages"), None)
    rules, sets = (passages.recipe["rules"], passages.counts["by_set"]) if passages else ([], {})
    verdicts: list[dict[str, Any]] = []
    for leaks in (store.manifest for store in _of_stage(own, "leaks")):
        how = {"rules": list(rules), "searched": leaks.counts["examples"], "policy": leaks.recipe["policy"]}
        found = leaks.counts["by_set"]
        verdicts += [
            {"domain": leaks.partition, "benchmark": name, "texts": texts, **how, "found": found.get(name, 0)}
            for name, texts in sets.items()
        ]
    for raw in _of_stage(own, "raw"):
        if pinned := read_sources(raw).get("benchmarks"):
            domain = raw.manifest.partition
            verdicts.append(
                {
                    "domain": domain,
                    "benchmark": ", ".join(f"{file['name']} (sha256 {file['sha256']})" for file in pinned["files"]),
                    "texts": "all of these files",
                    "rules": [f"{pinned['words']} words in a row"],
                    "searched": raw.manifest.counts["kept"],
                    "policy": "drop",
                    "found": refused_counts(_of_domain(own, domain)).get("decontaminate/contaminated", 0),
                }
            )
    return verdicts or NOT_LOOKED_FOR


def _steps(store: Published) -> dict[str, Any]:
    counts = store.manifest.counts
    steps = [{"step": name, "action": how["action"], "options": how["options"]} for name, how in store.manifest.recipe["steps"]]
    return {"store": store.manifest.label, "steps": steps, **{name: counts[name] for name in ("examples", "kept", "dropped", "found")}}


def _private_data(family: Family, description: Description, own: Chain) -> dict[str, Any]:
    """Domain → what was replaced, what its stores say of that, and what the step `private_data` found."""
    said: dict[str, Any] = {}
    for domain in description.licences:
        stores, replaced = _of_domain(own, domain), list(family.domains[domain].redact)
        results = [store.results["accounting"] for store in stores if store.results and "accounting" in store.results]
        clean = [part for result in results for part in result.summary.split("; ") if part.startswith("no private data in ")]
        judged = [_steps(store) for store in _of_stage(own, "quality") if store in stores]
        looked = [
            {
                **step["options"],
                "action": step["action"],
                "examples": each["examples"],
                "found": {name: count for name, count in each["found"].items() if name.startswith("private_data/")},
            }
            for each in judged
            for step in each["steps"]
            if step["step"] == "private_data"
        ]
        replacing = {"kinds": replaced, "then": clean} if replaced else NOT_LOOKED_FOR
        said[domain] = {"replaced": replacing, "looked for": looked or NOT_LOOKED_FOR}
    return said


def _versions(description: Description, chain: Chain) -> dict[str, str]:
    """Versions of what made the store; transformers is that of the machine that attests."""
    recipes = [store.manifest.recipe for _, stores in chain for store in stores]
    tokenizers = {recipe["tokenizer"]["tokenizers"] for recipe in recipes if isinstance(recipe.get("tokenizer"), Mapping)}
    return {
        "prep-assets": __version__,
        "tokenizers": " ".join(sorted(tokenizers)) or "no token is made",
        "transformers, where this was written": installed_version("transformers"),
        "tokenizer": description.hashes.get("tokenizer", "none"),
        "chat template": description.hashes.get("template", "none"),
    }


_IMAGES = "Placeholders of images are never trained."


def trained_in_words(family: Family) -> list[str]:
    """What a model is trained to write, by the options of a family, in sentences."""
    own = [f"Weights of {name} are those of {domain.weigh}." for name, domain in family.domains.items() if domain.weigh]
    if isinstance(family, Pretrain):
        end = "and the token that ends a document is trained too" if family.append_eod else "and no token ends a document"
        return [f"Every token of a document is trained, unless its source gives it no weight, {end}.", _IMAGES, *own]
    if isinstance(family, Eval):
        return ["Nothing is trained: it is held out."]
    if not isinstance(family, Sft):
        what = "Responses are trained by their rewards" if family.form_of_rows is Prompt else "The trainer decides what is trained"
        return [f"{what}; this family has no option of masks."]
    return [
        *family.sentences(),
        "A weight that a row or its schema gives to a turn or a part of it goes before its role.",
        *(_IMAGES, *own),
    ]


# Summaries that the law asks of those who train, in the words of `summaries.yaml`.

_SIZES = {10**9: "less than 1 billion tokens", 10**13 + 1: "1 billion to 10 trillion tokens"}


def _form(of: str) -> Any:
    return read_yaml(Path(__file__).with_name("summaries.yaml").read_text("utf-8"))[of]


def _eu_summary(content: Mapping[str, Any], family: Family) -> list[dict[str, Any]]:
    opt_outs, quality, images = content["opt_outs"], content["quality"], bool(getattr(family, "image_token", None))
    tokens, sums = content["store"]["counts"].get("tokens"), _has_sums(content)
    size = "" if tokens is None else next((said for least, said in _SIZES.items() if tokens < least), "more than 10 trillion tokens")
    data_sets = {each["domain"]: f"licence {each['licence']}; {', '.join(each['addresses'])}" for each in content["sources"]}
    dropped = quality if isinstance(quality, str) else f"{sum(each['dropped'] for each in quality):,}"
    stated = {
        "Modality": "text and images" if images else "text",
        "Training data size: text": f"{size}: {tokens:,} in this store" if size else TO_STATE,
        "Training data size: images": TO_STATE if images else "none",
        "Data sets": data_sets or "none",
        "Sums that prep-assets makes, by no model": f"{family.model_dump()['arithmetic']['n']:,}" if sums else "none",
        "Records forgotten": opt_outs if isinstance(opt_outs, str) else f"{len(opt_outs['forgotten']):,}; none of them is in the store",
        "Examples that quality steps dropped, for whatever reason": dropped,
    }
    return [{"section": section, "fields": {name: stated.get(name, TO_STATE) for name in names}} for section, names in _form("eu").items()]


def _california_summary(content: Mapping[str, Any], family: Family) -> list[dict[str, Any]]:
    counts, quality, sources = content["store"]["counts"], content["quality"], content["sources"]
    files = [file for each in sources for file in each["files"]]
    dropped = quality if isinstance(quality, str) else f"{sum(each['dropped'] for each in quality):,} examples dropped"
    refused = f"{sum(content['refused'].values()):,} records refused" if content["refused"] else "no record refused"
    facts: dict[str, Any] = {
        "sources": {each["domain"]: each["addresses"] for each in sources} or "none",
        "points": {
            "records in source files": sum(file["records"] for file in files if not file["held_out"]),
            "records in held-out files": sum(file["records"] for file in files if file["held_out"]),
            **{f"in this store, {name.replace('_', ' ')}": count for name, count in counts.items() if count},
        },
        "types": content["store"]["what"],
        "licences": content["store"].get("rows_by_licence") or {each["domain"]: each["licence"] for each in sources} or "none",
        "private": content["private_data"] or "none",
        "cleaning": {"records": refused, "quality steps": dropped, "private data replaced in": _redacted(content) or "no domain"},
        "synthetic": f"sums that prep-assets makes, by no model: {family.model_dump()['arithmetic']['n']:,}" if _has_sums(content) else "",
    }
    return [
        {
            "point": point,
            "known": facts.get(asked.get("known")) or "nothing",
            "to state": {asked["state"]: TO_STATE} if "state" in asked else "nothing",
        }
        for point, asked in _form("california").items()
    ]


def _redacted(content: Mapping[str, Any]) -> list[str]:
    return [domain for domain, each in content["private_data"].items() if each["replaced"] != NOT_LOOKED_FOR]


def _has_sums(content: Mapping[str, Any]) -> bool:
    return any(each["store"].startswith("arithmetic_") for each in content["lineage"])


def attestation_page(document: Mapping[str, Any], signer: str) -> str:
    """The page of an attestation; `signer` says whose signature it has."""
    return render_template(
        "prep_assets.extensions.neighbours", "attestation", signer=signer, sha256=document["sha256"], **document["attestation"]
    )
