"""Attestations: what they say is what the workspace has, and what was edited or replaced since is noticed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from prep_assets.config.loading import Tombstone, add_tombstones, payload_digest
from prep_assets.errors import StoreError
from prep_assets.neighbours.attestation import NOT_LOOKED_FOR, PROVIDER, attestation, faults_of, write_attestation
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in

ROWS = [{"prompt": f"What is {n}?", "completion": f"It is the number {n}, of course."} for n in range(30)]
ROWS[4] = {"prompt": "Who?", "completion": "Write to ann.lee@mail.org and ask."}
PAGES = ("html", "json")


def of(folder: Path, *, held_out: bool = False, steps: dict[str, Any] | None = None, **options: Any) -> Workspace:
    """A workspace with one domain of the family sft, packed."""
    folder.mkdir(parents=True, exist_ok=True)
    source = {**domain(jsonl(folder / "rows.jsonl", ROWS), "prompt_completion"), "licence": "mit", **options}
    families = minimal("sft", {"rows": source}, template="chatml", quality={"steps": steps or {}})
    if held_out:
        bench = [{"text": "Who wrote the long book about the white whale and the sea in the year when she was born?"}]
        families["eval"] = {"domains": {"bench": {"files": [str(jsonl(folder / "bench.jsonl", bench))], "schema": "text"}}}
    workspace = workspace_in(folder, families)
    if held_out:
        build(workspace, "eval_raw", "bench")
        build(workspace, "eval_passages")
    build(workspace, "sft_packed")
    return workspace


def test_what_was_not_looked_for_is_said(tmp_path: Path) -> None:
    body = attestation(of(tmp_path), "sft_packed")
    assert body["private_data"] == body["quality"] == body["held_out_texts"] == NOT_LOOKED_FOR
    assert body["forgotten"] == {"records": [], "stores_searched": 0, "still_held": 0}
    assert {each["text"] for each in body["public_summary"]} >= {PROVIDER, NOT_LOOKED_FOR}
    assert body["signature"] == ""


def test_what_it_says_is_what_the_stores_have(tmp_path: Path) -> None:
    steps = {"private_data": {"action": "drop"}, "gold_answers": {"action": "note"}}
    workspace = of(tmp_path, held_out=True, steps=steps, redact=["ip"])
    body = attestation(workspace, "sft_packed")
    packed, tokens = workspace.built("sft_packed").manifest, workspace.built("sft_tokens", "rows").manifest
    assert body["store"]["content"] == packed.content_hash and body["store"]["counts"]["rows"] == packed.counts["rows"]
    assert body["domains"] == [{"name": "rows", "licence": "mit", "addresses": [], "redacted": ["ip"]}]
    [source] = body["sources"]
    assert (source["rows"], source["bytes"]) == (30, (tmp_path / "rows.jsonl").stat().st_size)
    assert [(each["what"], each["found"]) for each in body["private_data"]] == [("private_data/private_email (drop)", 1)]
    assert {each["what"] for each in body["quality"]} == {"private_data/private_email (drop)"}
    assert [(each["found"], each["examples"]) for each in body["held_out_texts"]] == [(0, 29)]
    assert "rules gpt3" in body["held_out_texts"][0]["what"] and "policy block" in body["held_out_texts"][0]["what"]
    assert body["refused"] == {"sft_tokens: quality/private_email": 1}
    assert body["made_from"]["sft_tokens[rows]"] == tokens.content_hash
    assert all(each["holds"] for each in body["checks"]) and {"sft_packed", "sft_tokens[rows]"} <= {
        each["store"] for each in body["checks"]
    }
    share = f"{tokens.counts['trained_tokens']:,} of {tokens.counts['tokens']:,} tokens are trained"
    assert any(share in line for line in body["trained"])


def test_policies_are_said_in_words(tmp_path: Path) -> None:
    [sentence] = [line for line in attestation(of(tmp_path), "sft_tokens", "rows")["trained"] if "turns of" in line]
    recipe = Workspace(tmp_path / "configs", tmp_path / "stores").built("sft_tokens", "rows").manifest.recipe
    trained = [role for role, action in recipe["mask"].items() if action == "train"]
    assert f"turns of {', '.join(trained)} are trained" in sentence


def test_a_search_that_is_out_of_date_is_an_error(tmp_path: Path) -> None:
    of(tmp_path)
    later = of_configured(tmp_path)
    with pytest.raises(StoreError, match=r"sft_leaks\[rows\] is missing.*prep-assets build sft_leaks|is out of date|stale"):
        attestation(later, "sft_packed")


def of_configured(folder: Path) -> Workspace:
    """The same with something held out, which nobody has searched for yet."""
    (folder / "configs" / "eval.yaml").write_text(
        f"domains: {{bench: {{files: [{jsonl(folder / 'b.jsonl', [{'text': 'A b c.'}])}], schema: text}}}}\npolicy: report\n"
    )
    return Workspace(folder / "configs", folder / "stores")


def test_what_was_forgotten_is_gone(tmp_path: Path) -> None:
    workspace = of(tmp_path)
    add_tombstones(workspace.configs, [Tombstone("sft", "rows", "rows.jsonl:7", payload_digest(ROWS[7]), "asked for")])
    workspace = Workspace(workspace.configs, workspace.stores)
    for asset, partition in (("sft_raw", "rows"), ("sft_tokens", "rows"), ("sft_packed", "")):
        build(workspace, asset, partition)
    body = attestation(workspace, "sft_packed")
    assert body["forgotten"]["still_held"] == 0 and body["forgotten"]["stores_searched"] >= 2
    assert body["forgotten"]["records"] == [
        {"domain": "rows", "record": "rows.jsonl:7", "sha256": payload_digest(ROWS[7]), "reason": "asked for"}
    ]


def test_what_is_still_held_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stone = Tombstone("sft", "rows", "rows.jsonl:7", "0" * 64)
    monkeypatch.setattr("prep_assets.neighbours.attestation.read_tombstones", lambda folder: (stone,))
    assert attestation(of(tmp_path), "sft_packed")["forgotten"]["still_held"] == 2, "in the tokens and in the packed table"


def test_an_edited_file_and_another_store_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cryptography = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    pem = [serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()]
    keys = [cryptography.Ed25519PrivateKey.generate().private_bytes(*pem).decode() for _ in range(2)]
    monkeypatch.setenv("PREP_ASSETS_SIGNING_KEY", keys[0])
    workspace = of(tmp_path)
    file, page = write_attestation(tmp_path / "out", attestation(workspace, "sft_packed"))
    assert faults_of(workspace, file) == []
    text = file.read_text("utf-8")
    file.write_text(text.replace('"rows": 30', '"rows": 31'), "utf-8")
    assert "it was edited" in faults_of(workspace, file)[0]
    body = json.loads(text)
    body["signature"] = ""
    file.write_text(json.dumps(body), "utf-8")
    assert "it is not signed" in faults_of(workspace, file)[0]
    monkeypatch.setenv("PREP_ASSETS_SIGNING_KEY", keys[1])
    file.write_text(text, "utf-8")
    assert "signed by the key" in faults_of(workspace, file)[0]
    monkeypatch.setenv("PREP_ASSETS_SIGNING_KEY", keys[0])
    payload = workspace.built("sft_tokens", "rows").directory
    damaged = max((path for path in payload.rglob("*") if path.suffix in (".bin", ".npy", ".h5")), key=lambda path: path.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.chmod(0o644)
    damaged.write_bytes(content)
    assert damaged.name in faults_of(workspace, file)[0]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[:20]), "utf-8")
    again = Workspace(workspace.configs, workspace.stores)
    for asset, partition in (("sft_raw", "rows"), ("sft_tokens", "rows"), ("sft_packed", "")):
        build(again, asset, partition)
    assert re.search(r"sft_packed: it holds [0-9a-f]+…, [0-9a-f]+… is attested", faults_of(again, file)[0])
    assert "<h1>Attestation of sft_packed" in page.read_text("utf-8") and "signed by" in page.read_text("utf-8")


def test_no_attestation_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(StoreError, match="is no attestation"):
        faults_of(Workspace(tmp_path, tmp_path), path)
