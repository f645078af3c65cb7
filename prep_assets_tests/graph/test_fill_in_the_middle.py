"""`preprocessing.fim` from the configuration to a checked store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.config.models import Pretrain
from prep_assets.errors import ConfigError
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.tokens import open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, failing, jsonl, refusals, resealed, verdicts
from prep_assets_tests.proofs.corruption import Ragged

TOKENS = {"prefix_token": "<|fim_prefix|>", "suffix_token": "<|fim_suffix|>", "middle_token": "<|fim_middle|>"}
Made = Callable[..., tuple[Workspace, Published]]


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    return tokenizer_with_sentinels(tmp_path)


def tokenizer_with_sentinels(tmp_path: Path) -> str:
    """The sample tokenizer with sentinels, which are not marked special, as in Qwen's."""
    folder = tmp_path / "tokenizer"
    shutil.copytree(TOKENIZER, folder)
    spec = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    first = 1 + max(token["id"] for token in spec["added_tokens"])
    first = max(first, 1 + max(spec["model"]["vocab"].values()))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    spec["added_tokens"] += [{"id": first + i, "content": text, **flags} for i, text in enumerate(TOKENS.values())]
    (folder / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False), "utf-8")
    return str(folder)


@pytest.fixture
def made(make: Any, tokenizer: str) -> Made:
    def made(
        name: str, documents: dict[str, Any] | None = None, output: dict[str, Any] | None = None, **preprocessing: Any
    ) -> tuple[Workspace, Published]:
        domains = {"docs": documents or domain("docs.jsonl.zst", "text")}
        family = {"tokenizer": tokenizer, "domains": domains, "preprocessing": preprocessing, "output": output or {}}
        workspace = make({"pretrain": family}, name)
        build(workspace, "pretrain_raw", "docs")
        return workspace, build(workspace, "pretrain_tokens", "docs")

    return made


def documents(workspace: Workspace, store: Published) -> list[list[int]]:
    stream = open_tokens(store.directory, "docs_train")
    return [stream.record(i, "tokens").tolist() for i in range(len(stream))]


def test_without_a_rate_nothing_changes(made: Made) -> None:
    _, plain = made("plain")
    _, zero = made("zero", fim={"rate": 0.0, "seed": 0, "middle_token": "<|fim_middle|>"})
    assert zero.manifest.build_key == plain.manifest.build_key
    assert zero.manifest.content_hash == plain.manifest.content_hash


def test_a_share_of_the_documents_is_cut_and_every_check_holds(made: Made) -> None:
    workspace, cut = made("cut", fim={"rate": 0.5})
    plain = documents(*made("plain"))
    found = documents(workspace, cut)
    assert failing(workspace, cut) == [], verdicts(workspace, cut)["tokenization_identity"].summary
    identity = verdicts(workspace, cut)["tokenization_identity"]
    number = identity.numbers["documents_cut"]
    assert 0 < number < len(found) == len(plain)
    assert sum(a != b for a, b in zip(found, plain, strict=True)) == number
    assert f"{number:,} are cut into parts" in identity.summary
    # three sentinels more, and whatever two cuts do to the words they go through
    assert all(len(a) > len(b) for a, b in zip(found, plain, strict=True) if a != b)
    assert made("again", fim={"rate": 0.5})[1].manifest.content_hash == cut.manifest.content_hash
    assert made("seed", fim={"rate": 0.5, "seed": 1})[1].manifest.content_hash != cut.manifest.content_hash


@pytest.mark.parametrize("fault", ["sentinels exchanged", "parts exchanged", "a sentinel lost", "an uncut document cut"])
def test_a_store_with_its_parts_in_the_wrong_place_fails(made: Made, fault: str) -> None:
    workspace, store = made("cut", output={"storage_format": "bin"}, fim={"rate": 0.5, "spm_rate": 0.0})
    sentinels = [workspace.vocabulary(workspace.family(Pretrain)).backend.token_to_id(text) for text in TOKENS.values()]
    prefix, suffix, middle = sentinels
    stream = Ragged(store, "docs_train")
    is_cut = [prefix in stream.tokens[stream.span(i)] for i in range(len(stream.ends))]
    span = stream.span(is_cut.index(fault != "an uncut document cut"))
    ids = stream.tokens[span].copy()
    at = {token: int(np.flatnonzero(ids == token)[0]) for token in sentinels if token in ids}
    if fault == "sentinels exchanged":
        ids[at[suffix]], ids[at[middle]] = middle, suffix
    elif fault == "parts exchanged":
        head, body = ids[1 : at[suffix]], ids[at[middle] + 1 : -1]
        ids = np.concatenate([ids[:1], body, ids[at[suffix] : at[middle] + 1], head, ids[-1:]])
    elif fault == "a sentinel lost":
        ids[at[middle]] = ids[at[middle] + 1]
    else:
        ids[[0, 1, -2]] = sentinels
    stream.tokens[span] = ids
    stream.tokens.flush()
    assert "tokenization_identity" in failing(workspace, resealed(store))


def test_a_document_with_a_typed_sentinel_is_refused(made: Made, tmp_path: Path) -> None:
    rows = [{"text": "A document."}, {"text": "Another <|fim_suffix|> document."}]
    file = jsonl(tmp_path / "typed.jsonl", rows)
    _, store = made("typed", {"files": [str(file)], "schema": "text"}, fim={"rate": 0.0001})
    assert store.manifest.counts["kept"] == 1
    assert [(each.reason, json.loads(each.payload)) for each in refusals(store)] == [("control_token_in_content", rows[1])]


def test_a_tokenizer_without_the_tokens_stops(make: Any) -> None:
    family = {"tokenizer": TOKENIZER, "domains": {"docs": domain("docs.jsonl.zst", "text")}, "preprocessing": {"fim": {"rate": 0.5}}}
    workspace = make({"pretrain": family})
    build(workspace, "pretrain_raw", "docs")
    with pytest.raises(ConfigError, match=r"preprocessing\.fim\.prefix_token: .*no added token '<\|fim_prefix\|>'.*It has: "):
        build(workspace, "pretrain_tokens", "docs")
