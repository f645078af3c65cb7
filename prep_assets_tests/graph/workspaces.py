"""Small workspaces made from the shipped samples, for tests of whole pipelines."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from prep_assets.config.models import FAMILIES
from prep_assets.data.quarantine import Refusal, read_quarantine
from prep_assets.engine import State, plan, run
from prep_assets.engine.events import Accepted, Blocked
from prep_assets.engine.plan import Step
from prep_assets.errors import CheckFailed
from prep_assets.graph.graph import ASSETS, CHECKS, EVERY, asset_named, assets_of, run_check, upstream_of
from prep_assets.pipeline.asset import Asset, Check, FromParts
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.manifest import file_hash
from prep_assets.stores.version_folders import POINTERS, Published, name_of, point, target
from prep_assets_tests.graph.families import FAMILIES as TRIED
from prep_assets_tests.graph.families import ROW
from prep_assets_tests.stores.payload import list_payload

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SAMPLES = CONFIGS / "samples"
TOKENIZER = str(CONFIGS / "tokenizer")


def domain(file: str | Path, schema: str, **more: Any) -> dict[str, Any]:
    """One domain of one file: a shipped sample by its name, or any other by its path."""
    return {"files": [str(SAMPLES / file)], "schema": schema, **more}


SHIPPED: Mapping[str, dict[str, Any]] = {
    "pretrain": {
        "tokenizer": TOKENIZER,
        "test_fraction": 0.1,
        "domains": {"docs": domain("docs.jsonl.zst", "text"), "notes": domain("notes.txt", "text")},
    },
    "sft": {
        "tokenizer": TOKENIZER,
        "template": "tokenizer",
        "mask": {"system": "mask", "user": "mask", "assistant": "train"},
        "mask_default": "mask",
        "preprocessing": {"max_seq_len": 1024, "deduplicate": True},
        "packing": {"strategy": "concat", "row_len": 512},
        "test_fraction": 0.1,
        "domains": {
            "gsm8k": domain("gsm8k.jsonl", "gsm8k"),
            "alpaca": domain("alpaca.json", "alpaca"),
            "dolly": domain("dolly.jsonl", "dolly", ignore=["category"]),
            "chats": domain("chats.jsonl", "messages"),
        },
    },
    "preference": {
        "tokenizer": TOKENIZER,
        "test_fraction": 0.1,
        "domains": {"hh": domain("hh.jsonl.gz", "hh"), "ultrafeedback": domain("ultrafeedback.jsonl", "ultrafeedback")},
    },
    "rl": {"tokenizer": TOKENIZER, "test_fraction": 0.1, "arithmetic": {"n": 300}, "domains": {"gsm8k": domain("gsm8k.jsonl", "gsm8k")}},
}


SHIPPED_ASSETS: Mapping[str, Asset] = {name: asset for name, asset in ASSETS.items() if asset.family in SHIPPED}
"""The assets of these families."""


def shipped(storage_format: str = "h5") -> dict[str, dict[str, Any]]:
    """Configurations of all four families."""
    return {family: {**copy.deepcopy(options), "output": {"storage_format": storage_format}} for family, options in SHIPPED.items()}


def with_groups(families: dict[str, dict[str, Any]], folder: Path, count: int = 120) -> dict[str, dict[str, Any]]:
    """The configurations with a domain ``scored`` of the rl family: prompts of two and three responses, whose rewards differ."""
    texts = ("It is {}.", "I think that it may well be {}!", "{}")
    rows = [
        {
            "prompt": f"What is {number} + {number + 1}?",
            "responses": [text.format(2 * number + 1 - at) for at, text in enumerate(texts[: 2 + number % 2])],
            "rewards": [1.5, -0.25, 0.125][: 2 + number % 2],
        }
        for number in range(count)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    families["rl"]["domains"]["scored"] = domain(jsonl(folder / "scored.jsonl", rows), "group")
    return families


def with_others(families: dict[str, dict[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """The configurations with those of families that have no shipped samples: a domain ``questions`` each."""
    folder.mkdir(parents=True, exist_ok=True)
    others = {family: tried.schema for family, tried in TRIED.items() if family not in families}
    for family, schema in others.items():
        rows = [ROW[schema](f"What is {n}?", f"It is {n}.", f"It is {n + 1}.") for n in range(24)]
        asked = domain(jsonl(folder / f"{family}_questions.jsonl", rows), schema)
        families = {**families, **minimal(family, {"questions": asked}, test_fraction=0.2)}
    return families


def judged(families: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The configurations with quality steps that drop nothing, a held-out data set whose leaks are reported, and blends."""
    for options in families.values():
        options["quality"] = {
            "steps": {"near_duplicates": {"action": "note"}, "prep_assets_tests.quality.own_steps:even": {"action": "note"}}
        }
    for family, blend in (("pretrain", {"window": 16}), ("sft", {})):
        families[family]["blend"] = blend
    held_out = {"domains": {"bench": domain("gsm8k.jsonl", "gsm8k", max_items=5)}, "policy": "report"}
    return {**families, "eval": held_out}


def minimal(family: str, domains: Mapping[str, Any], **options: Any) -> dict[str, dict[str, Any]]:
    """A configuration of one family with nothing but these options, and 20 sums where it makes some: left out, it makes 5,000."""
    sums = {"arithmetic": {"n": 20}} if family == "rl" else {}
    return {family: {"tokenizer": TOKENIZER, "domains": dict(domains), **sums, **options}}


def workspace_in(folder: Path, families: Mapping[str, Any]) -> Workspace:
    """Write the configurations below `folder`, keys in the order they are given in, and open them. Stores go beside them."""
    configs = folder / "configs"
    configs.mkdir(parents=True, exist_ok=True)
    for family, options in families.items():
        (configs / f"{family}.yaml").write_text(yaml.safe_dump(options, sort_keys=False, allow_unicode=True), "utf-8")
    return Workspace(configs, folder / "stores")


def copy_of(workspace: Workspace, folder: Path) -> Workspace:
    """A workspace with all its stores in a new folder."""
    shutil.copytree(workspace.configs.parent, folder, symlinks=True)
    return Workspace(folder / "configs", folder / "stores")


def build(workspace: Workspace, asset: str, partition: str = "") -> Published:
    """Build one store, and before it what it merges and what is missing of what it is made from."""
    source = EVERY[asset].source
    merged = source.assets if isinstance(source, FromParts) else ()
    for above, each in upstream_of(workspace, EVERY[asset], partition):
        if above.name in merged or workspace.published(above.name, each) is None:
            build(workspace, above.name, each)
    return make(workspace, EVERY[asset], partition)


def part_of(workspace: Workspace, asset: str, name: str) -> Published:
    """The store of one domain that a store was merged from."""
    return workspace.built(EVERY[asset].parts, name)


def make(workspace: Workspace, asset: Asset, partition: str = "") -> Published:
    """Build one store, one that is no asset of the graph too; options that the workspace sets are published."""
    for event in run(workspace, [Step(asset, partition, "missing", "for a test", requested=True)], publish=True):
        if isinstance(event, Blocked):
            raise event.error or CheckFailed(event.reason)
        if isinstance(event, Accepted):
            return event.published
    raise AssertionError("the engine said nothing")


def out_of_date(workspace: Workspace, asset: Asset, partition: str = "") -> list[tuple[Asset, str, State]]:
    """What the engine would build before this store, and what each is now."""
    return [(step.asset, step.partition, step.state) for step in plan(workspace, [(asset, partition)]) if not step.requested]


def build_all(
    workspace: Workspace, families: Iterable[str] = FAMILIES, how: Callable[..., Published] = make, *, exports: bool = False
) -> dict[tuple[str, str], Published]:
    """Build every store of the families, and before each what feeds it; exports too where they are asked for."""
    built: dict[tuple[str, str], Published] = {}

    def visit(asset: Asset, partition: str) -> None:
        if (asset.name, partition) not in built:
            for above, each in upstream_of(workspace, asset, partition):
                visit(above, each)
            built[asset.name, partition] = how(workspace, asset, partition)

    for name, asset in assets_of(workspace).items():
        if asset.family in families and (exports or name in EVERY):
            for each in asset.partitions(workspace):
                visit(asset, each)
    return built


def unchecked(workspace: Workspace, asset: Asset, partition: str = "") -> Published:
    """Build and publish one store without its checks, for tests that carry them out themselves or look at what is in it."""
    place, built = workspace.place(asset.name, partition), asset.build(workspace, partition).propose()
    place.accept(built, {})
    return built


def all_unchecked(workspace: Workspace) -> Workspace:
    """Every store of a workspace, built and published unchecked."""
    build_all(workspace, how=unchecked, exports=True)
    return workspace


def verdicts(workspace: Workspace, published: Published) -> dict[str, Verdict]:
    """Every check of a store, in one run as the engine's; what a check raises that it should not comes out."""
    checks = CHECKS[published.manifest.asset]
    run = replace(published, evidence={check.name: None for check in checks})
    return {check.name: carried_out(run_check(check, workspace, run)) for check in checks}


def carried_out(verdict: Verdict) -> Verdict:
    """A verdict that is none on an accident in its check, which fails as well, and has seen nothing."""
    assert not verdict.summary.startswith("the check could not be carried out"), verdict.summary
    return verdict


def failing(workspace: Workspace, published: Published) -> list[str]:
    """Names of the checks that do not hold."""
    return [name for name, verdict in verdicts(workspace, published).items() if not verdict.passed]


def refusals(published: Published) -> list[Refusal]:
    """The quarantine of a store."""
    return list(read_quarantine(published.quarantine)) if published.quarantine else []


def jsonl(path: Path, rows: Iterable[Any]) -> Path:
    """Write a JSONL file."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def tree(folder: Path) -> dict[str, bytes]:
    """Every regular file that stores consist of, by relative path; what says only when a file was last looked at is left out."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    kept = (path for path in files if ".hashes" not in path.parts and path.name != ".lock" and "current" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in kept}


def resealed(published: Published) -> Published:
    """The store with a manifest and a name that fit whatever now lies in its payload, so that hashes no longer give a corruption away."""
    quarantine = published.directory.with_name(published.directory.name + ".quarantine.jsonl")
    manifest = replace(
        published.manifest, files=list_payload(published.directory), quarantine=file_hash(quarantine) if quarantine.is_file() else ""
    )
    manifest.write(published.directory)
    old, place = published.directory.resolve(), published.directory.resolve().parent.parent
    new = old.with_name(name_of(manifest.build_key, manifest.content_hash))
    pointing = [name for name in POINTERS if target(place, name) == old]
    if new != old:
        for suffix in ("", ".quarantine.jsonl", ".checks.json"):
            if (beside := old.with_name(old.name + suffix)).exists():
                beside.rename(new.with_name(new.name + suffix))
        for name in pointing:
            point(place, name, new)
    return Published(new, manifest)


def checks_of(asset: str, workspace: Workspace | None = None) -> tuple[Check, ...]:
    """The checks of an asset; with a workspace, also of one of its exports."""
    return asset_named(asset, workspace).checks
