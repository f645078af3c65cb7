"""An attestation says what the files say, and is refused where it, its signature or its store was altered."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.config.loading import read_tombstones
from prep_assets.config.mask import MaskPolicy
from prep_assets.config.models import Sft
from prep_assets.engine.execute import build
from prep_assets.errors import StoreError
from prep_assets.extensions.neighbours.attestation import (
    NOT_LOOKED_FOR,
    NOT_SAID,
    TO_STATE,
    attest,
    attestation_page,
    check,
    signed_by,
    text_of,
    trained_in_words,
)
from prep_assets.extensions.neighbours.forget import forget, forgotten_rows
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets_tests.extensions.neighbours.test_hub import run
from prep_assets_tests.graph.test_options import EVERY
from prep_assets_tests.graph.workspaces import SAMPLES, copy_of, domain, jsonl, minimal, shipped, workspace_in
from prep_assets_tests.stores.test_signing import pair

PRIVATE = "Write to maria.lopez@correo.es, or call +34 612 345 678."
ROWS = [{"prompt": f"Count up to {n} for me, please.", "completion": " ".join(map(str, range(n + 1)))} for n in range(20)]
ROWS += [
    {"prompt": "Who knows?", "completion": PRIVATE},
    {"prompt": f"Again: {ROWS[5]['prompt']}", "completion": ROWS[6]["completion"]},
    ROWS[3],
    {"prompt": "Empty"},
    {"prompt": "Hi?", "completion": "Yes"},  # too short to be searched for by text
]


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Packed rows of two domains, searched for private data and for five texts of a benchmark, which are in one of them."""
    folder = tmp_path_factory.mktemp("attested")
    own = domain(jsonl(folder / "own.jsonl", ROWS), "prompt_completion", licence="mit", redact=["email"])
    dolly = shipped()["sft"]["domains"]["dolly"]
    sft = {**shipped()["sft"], "test_fraction": 0.0, "domains": {"own": own, "dolly": dolly}}
    sft["mask"] = {"system": "mask", "user": "mask", "assistant": "train", "completion": "train"}
    sft["quality"] = {"steps": {"private_data": {"action": "note"}}}
    bench = {"policy": "report", "domains": {"bench": {**dolly, "max_items": 5}}}
    workspace = workspace_in(folder, {"sft": sft, "eval": bench})
    build(workspace, "sft_packed")
    return Workspace(workspace.configs, workspace.stores)


@pytest.fixture
def ours(watched: Workspace, tmp_path: Path) -> Workspace:
    """A copy, for one test to change."""
    return copy_of(watched, tmp_path / "ours")


@pytest.fixture
def keys(tmp_path: Path) -> tuple[str, str]:
    """A private key and its public one."""
    pytest.importorskip("cryptography")
    private, public = pair(tmp_path / "keys", "officer")
    return str(private), str(public)


def manifest_of(workspace: Workspace, *names: str) -> dict[str, Any]:
    """A manifest as it stands on disk."""
    found: dict[str, Any] = json.loads(workspace.stores.joinpath(*names, "current", "manifest.json").read_text("utf-8"))
    return found


def sha256(value: Any) -> str:
    """Of a JSON value in canonical form."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def test_it_says_what_the_files_say(watched: Workspace) -> None:
    document = attest(watched, "sft_packed")
    said = json.loads(text_of(document))["attestation"]
    assert document["sha256"] == sha256(said) and document["signature"] == ""
    manifest = manifest_of(watched, "sft_packed")
    signed = {name: value for name, value in manifest.items() if name not in ("config_key", "signature", "options", "seal")}
    assert said["store"]["manifest_hash"] == sha256(signed)
    assert said["store"]["content_hash"] == sha256({name: entry["sha256"] for name, entry in manifest["files"].items()})
    assert (said["store"]["build_key"], said["store"]["licence"]) == (manifest["build_key"], NOT_SAID)
    assert said["store"]["counts"] == {name: count for name, count in manifest["counts"].items() if isinstance(count, int)}
    for source, path in zip(said["sources"], (watched.configs.parent / "own.jsonl", SAMPLES / "dolly.jsonl"), strict=True):
        content = path.read_bytes()
        size, rows, digest = len(content), content.count(b"\n"), hashlib.sha256(content).hexdigest()
        assert source["files"] == [{"name": path.name, "bytes": size, "records": rows, "sha256": digest, "held_out": False}]
    assert [source["licence"] for source in said["sources"]] == ["mit", NOT_SAID]
    refused = {f"sft_tokens: {reason}": count for reason, count in manifest_of(watched, "sft_tokens", "own")["counts"]["refused"].items()}
    assert said["refused"] == refused and sum(refused.values()) == 2
    found = {
        each["domain"]: (each["benchmark"], each["texts"], each["rules"], each["found"], each["policy"]) for each in said["contamination"]
    }
    assert found == {"own": ("bench (eval)", 5, ["gpt3"], 0, "report"), "dolly": ("bench (eval)", 5, ["gpt3"], 5, "report")}
    own = said["private_data"]["own"]
    assert own["replaced"]["kinds"] == ["email"] and any("1 × <EMAIL_ADDRESS>" in each for each in own["replaced"]["then"])
    assert own["looked for"][0]["found"] == {"private_data/private_phone (note)": 1}
    assert said["private_data"]["dolly"]["replaced"] == NOT_LOOKED_FOR
    assert said["private_data"]["dolly"]["looked for"][0]["examples"] == manifest_of(watched, "sft_quality", "dolly")["counts"]["examples"]
    assert [(each["store"], each["steps"][0]["step"]) for each in said["quality"]] == [
        ("sft_quality[own]", "private_data"),
        ("sft_quality[dolly]", "private_data"),
    ]
    lineage = {each["store"]: each for each in said["lineage"]}
    for stage in ("raw", "quality", "leaks", "tokens"):
        above = manifest_of(watched, f"sft_{stage}", "own")
        assert lineage[f"sft_{stage}[own]"]["build_key"] == above["build_key"]
        assert lineage[f"sft_{stage}[own]"]["content_hash"] == sha256({name: entry["sha256"] for name, entry in above["files"].items()})
    recipe = manifest_of(watched, "sft_tokens", "own")["recipe"]
    assert said["versions"]["chat template"] == recipe["template"]
    assert said["versions"]["tokenizer"] == recipe["tokenizer"]["sha256"]
    assert said["versions"]["tokenizers"] == recipe["tokenizer"]["tokenizers"]
    assert {("sft_packed", "file_hashes", True), ("sft_tokens[own]", "mask_alignment", True), ("sft_leaks[dolly]", "no_leaks", True)} <= {
        (each["store"], each["check"], each["holds"]) for each in said["checks"]
    }
    assert (
        said["trained"][0]
        == "Trained are turns of the roles assistant, completion; not trained are system, user; other roles are not trained."
    )


def test_one_domain_has_only_its_own_sources_and_refusals(tmp_path: Path) -> None:
    two = {name: domain(jsonl(tmp_path / f"{name}.jsonl", ROWS), "prompt_completion") for name in ("one", "two")}
    options = {
        **shipped()["sft"],
        "domains": two,
        "mask": {"completion": "train"},
        "test_fraction": 0.0,
        "quality": {"steps": {"near_duplicates": {"action": "note", "across": True}}},
    }
    workspace = workspace_in(tmp_path, {"sft": options})
    build(workspace, "sft_tokens", partition="two")
    said = attest(Workspace(workspace.configs, workspace.stores), "sft_tokens", "two")["attestation"]
    assert {each["store"] for each in said["lineage"]} >= {"sft_quality[one]", "sft_quality[two]"}
    assert [each["domain"] for each in said["sources"]] == ["two"]
    assert [each["store"] for each in said["quality"]] == ["sft_quality[two]"]
    assert list(said["private_data"]) == ["two"]


def test_an_option_that_is_not_set_has_its_place_on_the_page(tmp_path: Path) -> None:
    source = domain(jsonl(tmp_path / "rows.jsonl", ROWS), "prompt_completion")
    options = minimal("sft", {"rows": source}, template="chatml", quality={"steps": {"language": {"keep": ["en"], "action": "note"}}})
    workspace = workspace_in(tmp_path, options)
    build(workspace, "sft_tokens", partition="rows")
    document = attest(workspace, "sft_tokens", "rows")
    assert document["attestation"]["quality"][0]["steps"][0]["options"]["among"] is None
    assert "among: none" in re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", attestation_page(document, ""))))


def test_equal_stores_give_equal_documents(watched: Workspace, ours: Workspace) -> None:
    assert text_of(attest(ours, "sft_packed")) == text_of(attest(watched, "sft_packed"))


def test_what_was_not_looked_for_and_what_nobody_said(built: Workspace) -> None:
    said = attest(built, "sft_packed")["attestation"]
    assert said["contamination"] == said["quality"] == NOT_LOOKED_FOR
    assert said["private_data"]["dolly"] == {"replaced": NOT_LOOKED_FOR, "looked for": NOT_LOOKED_FOR}
    assert said["opt_outs"] == "no record was forgotten"
    assert [source["licence"] for source in said["sources"]] == [NOT_SAID, NOT_SAID]
    assert said["store"]["licence"] == "cc-by-4.0"
    summary = {each["section"]: each["fields"] for each in said["eu_summary"]}
    assert set(summary["1.1. Provider identification"].values()) == {TO_STATE}
    assert summary["2.1. Publicly available datasets"] == {"Large datasets": TO_STATE, "Other datasets": TO_STATE}
    assert summary["3.2. Removal of illegal content"]["Examples that quality steps dropped, for whatever reason"] == NOT_LOOKED_FOR
    tokens = manifest_of(built, "sft_packed")["counts"]["tokens"]
    modalities = "1.3. Modalities, overall training data size and other characteristics"
    assert summary[modalities]["Training data size: text"] == f"less than 1 billion tokens: {tokens:,} in this store"
    assert attest(built, "preferences")["attestation"]["store"]["licence"] == "apache-2.0"
    assert attest(built, "sft_export_hub")["attestation"]["sources"] == said["sources"]


def test_the_twelve_points_of_california_have_what_is_known_and_blanks(watched: Workspace, built: Workspace) -> None:
    said = attest(watched, "sft_packed")["attestation"]
    points = {int(re.match(r"\((\d+)\)", each["point"])[1]): each for each in said["california_summary"]}  # type: ignore[index]
    assert sorted(points) == [*range(1, 13)]
    counts = manifest_of(watched, "sft_packed")["counts"]
    dolly = len((SAMPLES / "dolly.jsonl").read_text("utf-8").splitlines())
    assert points[3]["known"]["records in source files"] == len(ROWS) + dolly
    assert points[3]["known"]["in this store, tokens"] == counts["tokens"]
    assert points[5]["known"] == points[6]["known"] == {"own": "mit", "dolly": NOT_SAID}
    assert points[7]["known"] == said["private_data"]
    assert points[9]["known"]["private data replaced in"] == ["own"]
    assert points[9]["known"]["records"] == f"{sum(said['refused'].values()):,} records refused"
    # what nobody but the developer knows is a blank, and only that
    assert [number for number, each in points.items() if each["known"] == "nothing"] == [2, 8, 10, 11, 12]
    assert {number for number, each in points.items() if each["to state"] == "nothing"} == {3}
    assert all([*each["to state"].values()] == [TO_STATE] for number, each in points.items() if number != 3)
    sums = attest(built, "rl_prompts")["attestation"]["california_summary"][11]["known"]
    assert sums == "nothing" or sums.startswith("sums that prep-assets makes, by no model: ")


def test_benchmarks_of_decontaminate(ours: Workspace) -> None:
    (ours.configs / "bench.json").write_text(json.dumps([{"text": ROWS[15]["completion"]}]), "utf-8")
    path = ours.configs / "sft.yaml"
    options = yaml.safe_load(path.read_text("utf-8"))
    path.write_text(yaml.safe_dump({**options, "decontaminate": {"files": ["bench.json"]}}, sort_keys=False), "utf-8")
    (ours.configs / "eval.yaml").unlink()
    workspace = Workspace(ours.configs, ours.stores)
    build(workspace, "sft_packed")
    said = attest(Workspace(ours.configs, ours.stores), "sft_packed")["attestation"]["contamination"]
    digest = hashlib.sha256((ours.configs / "bench.json").read_bytes()).hexdigest()
    assert {each["domain"]: (each["benchmark"], each["rules"], each["found"]) for each in said} == {
        "own": (f"bench.json (sha256 {digest})", ["13 words in a row"], 8),
        "dolly": (f"bench.json (sha256 {digest})", ["13 words in a row"], 0),
    }


def test_a_forgotten_record_is_said_and_searched_for(ours: Workspace) -> None:
    forget(ours, ["own/own.jsonl:8"], reason="asked to")
    workspace = Workspace(ours.configs, ours.stores)
    said = attest(workspace, "sft_packed")["attestation"]
    digest = hashlib.sha256(json.dumps(ROWS[7], sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    assert said["opt_outs"]["forgotten"] == [{"domain": "own", "record": "own.jsonl:8", "digest": digest, "reason": "asked to"}]
    assert (said["opt_outs"]["rows_in_sources"], said["opt_outs"]["found"]) == (1, 0)
    assert {"sft_tokens[own]", "sft_packed"} <= set(said["opt_outs"]["searched"])
    assert said["refused"]["sft_tokens: records/forgotten"] == 1
    assert "asked to" in attestation_page(attest(workspace, "sft_packed"), "")
    # tombstones that no build has read: the search alone can tell
    for row in (8, 24):
        digest = hashlib.sha256(json.dumps(ROWS[row], sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        with (ours.configs / "forgotten.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"family": "sft", "domain": "own", "record": f"own.jsonl:{row}", "digest": digest}) + "\n")
    stores = [published for name, part in (("sft_tokens", "own"), ("sft_packed", "")) if (published := workspace.published(name, part))]
    assert forgotten_rows(workspace, read_tombstones(ours.configs), stores).left == {
        "sft_tokens[own]": ("own/own.jsonl:9", "own/own.jsonl:25"),
        "sft_packed": ("own/own.jsonl:9", "own/own.jsonl:25"),
    }


def test_a_record_that_holds_what_is_forgotten_stops_it(ours: Workspace) -> None:
    assert forget(ours, ["own/own.jsonl:6"]).left
    with pytest.raises(
        StoreError, match=r"^sft_packed is not attested: what is forgotten, or the same text, is still in .*own/own\.jsonl:22"
    ):
        attest(Workspace(ours.configs, ours.stores), "sft_packed")


def test_a_page_of_the_same(watched: Workspace, keys: tuple[str, str]) -> None:
    document = attest(watched, "sft_packed", key=keys[0])
    page = unescape(re.sub(r"<[^>]+>", "", attestation_page(document, signed_by(document["signature"]))))
    said = document["attestation"]
    wanted = [
        *(said["store"][name] for name in ("version", "content_hash", "build_key", "manifest_hash")),
        *(file["sha256"] for source in said["sources"] for file in source["files"]),
        *(each["says"] for each in said["checks"]),
        *said["refused"],
        *said["trained"],
        *(each["section"] for each in said["eu_summary"]),
        *(each["point"] for each in said["california_summary"]),
        *(each["manifest_hash"] for each in said["lineage"]),
        document["sha256"],
        signed_by(document["signature"]),
    ]
    assert [each for each in wanted if each not in page] == []
    blanks = sum(value == TO_STATE for each in said["eu_summary"] for value in each["fields"].values())
    assert page.count(TO_STATE) == blanks + sum(each["to state"] != "nothing" for each in said["california_summary"])


def test_a_record_writes_no_html(ours: Workspace) -> None:
    document = attest(ours, "sft_packed")
    document["attestation"]["sources"][0]["files"][0]["name"] = "<script>alert(1)</script>\u202e"
    page = attestation_page(document, "")
    assert "<script" not in page and "\u202e" not in page


def _in_the_text(document: dict[str, Any]) -> None:
    document["attestation"]["sources"][1]["licence"] = "mit"


def _in_the_text_and_its_hash(document: dict[str, Any]) -> None:
    _in_the_text(document)
    document["sha256"] = sha256(document["attestation"])


def _in_the_signature(document: dict[str, Any]) -> None:
    document["signature"] = document["signature"][:-2] + ("00" if document["signature"][-2:] != "00" else "11")


def _without_the_signature(document: dict[str, Any]) -> None:
    document["signature"] = ""


def _without_the_store(document: dict[str, Any]) -> None:
    del document["attestation"]["store"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_in_the_text, "was altered: what it says has the sha256"),
        (_in_the_text_and_its_hash, "it is forged: what it says is not what the key"),
        (_in_the_signature, "it is forged"),
        (_without_the_signature, "is not signed, so anybody may have written it"),
        (_without_the_store, "is no attestation"),
    ],
)
def test_an_altered_document_is_found(
    watched: Workspace, keys: tuple[str, str], tmp_path: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    document, path = attest(watched, "sft_packed", key=keys[0]), tmp_path / "a.json"
    path.write_text(text_of(document), "utf-8")
    assert check(watched, path, key=keys[1]).startswith("sft_packed is the store that a.json attests, signed by the ed25519 key ")
    change(document)
    path.write_text(text_of(document), "utf-8")
    with pytest.raises(StoreError, match=said):
        check(watched, path, key=keys[1])


def test_a_key_that_is_not_trusted(watched: Workspace, keys: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text_of(attest(watched, "sft_packed", key=str(pair(tmp_path / "theirs", "theirs")[0]))), "utf-8")
    assert "an untrusted key" in check(watched, path)
    with pytest.raises(StoreError, match=r"it is signed by the key [0-9a-f]{16}…, which .*officer\.pem does not have"):
        check(watched, path, key=keys[1])


def test_a_store_that_is_another_one_or_damaged_is_found(ours: Workspace, keys: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text_of(attest(ours, "sft_packed", key=keys[0])), "utf-8")
    published = ours.published("sft_packed")
    assert isinstance(published, Published)
    file = next(each for each in sorted(published.folder.rglob("*")) if each.is_file() and each.name != "manifest.json")
    content = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for look in (lambda: check(ours, path, key=keys[1]), lambda: attest(ours, "sft_packed")):
        with pytest.raises(StoreError, match=rf"is not what its manifest says:\n  .*{re.escape(file.name)}: content altered"):
            look()
    file.write_bytes(content)
    check(ours, path, key=keys[1])
    forget(ours, ["own/own.jsonl:8"])
    with pytest.raises(StoreError, match=r"attests another sft_packed than is current: content_hash is attested as [0-9a-f]{16}… and is"):
        check(Workspace(ours.configs, ours.stores), path, key=keys[1])
    shutil.rmtree(ours.stores / "sft_packed")
    with pytest.raises(StoreError, match=r"attests sft_packed, and .* has no such store"):
        check(Workspace(ours.configs, ours.stores), path, key=keys[1])


def test_a_store_above_that_is_another_one_or_damaged_is_found(ours: Workspace, keys: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text_of(attest(ours, "sft_packed", key=keys[0])), "utf-8")
    published = ours.published("sft_quality", "own")
    assert published is not None
    file = published.folder / "verdicts.parquet"
    content = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(content + b"\0")
    with pytest.raises(StoreError, match=r"sft_quality/own/.* is not what its manifest says"):
        check(ours, path, key=keys[1])
    file.write_bytes(content)
    check(ours, path, key=keys[1])
    shutil.rmtree(ours.stores / "sft_quality" / "own")
    with pytest.raises(StoreError, match=r"sft_quality\[own\], of which sft_packed is made, is not there; attested is [0-9a-f]{16}…"):
        check(Workspace(ours.configs, ours.stores), path, key=keys[1])


def test_what_is_trained(watched: Workspace) -> None:
    family = watched.family(Sft).model_copy(
        update={"mask": {}, "mask_default": "train", "train_turns": "last", "train_on_eos": "none", "train_thinking": False}
    )
    assert trained_in_words(family) == [
        "Trained are turns of the roles (none); not trained are (none); other roles are trained.",
        "Of these turns only the last of a conversation is trained.",
        "No stop token is trained.",
        "In trained turns, reasoning is not trained.",
        "In trained turns, tool calls are trained.",
        "In trained turns, what the template writes before them is not trained.",
        "A weight that a row or its schema gives to a turn or a part of it goes before its role.",
        "Placeholders of images are never trained.",
    ]


def test_every_option_of_masks_changes_a_sentence(watched: Workspace) -> None:
    family = watched.family(Sft)
    changed = {name: family.model_copy(update={name: EVERY["sft", name].value}) for name in MaskPolicy.model_fields}  # type: ignore[union-attr]
    assert [name for name, other in changed.items() if trained_in_words(other) == trained_in_words(family)] == []


def test_the_command(watched: Workspace, keys: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(watched, "attest", "sft_tokens", "-p", "own", "--out", str(out), "--key", keys[0])
    assert result.exit_code == 0 and "signed by the ed25519 key" in result.output
    assert sorted(path.name for path in out.iterdir()) == ["sft_tokens-own.html", "sft_tokens-own.json"]
    file = str(out / "sft_tokens-own.json")
    assert run(watched, "attest", "--check", file, "--key", keys[1]).exit_code == 0
    Path(file).write_text(Path(file).read_text("utf-8").replace('"licence": "mit"', '"licence": "mit-0"'), "utf-8")
    result = run(watched, "attest", "--check", file, "--key", keys[1])
    assert result.exit_code == 1 and "was altered" in result.output
    assert run(watched, "attest").exit_code == run(watched, "attest", "sft_packed", "--check", file).exit_code == 2
    assert "to sign it" in run(watched, "attest", "sft_packed", "--out", str(out)).output
