"""`append_eod: false`: documents without an end-of-text token, as ModelLink writes them where --append-eod is not given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from prep_assets.config.models import Pretrain
from prep_assets.engine import build
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.explain.trace import trace
from prep_assets.exports import export
from prep_assets.graph.selftest import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.open import open_store
from prep_assets.stores.tokens import open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.test_bos import TEXTS, built, tokenizer
from prep_assets_tests.graph.workspaces import TOKENIZER, domain, failing, jsonl, minimal, resealed, workspace_in


@pytest.fixture(scope="module")
def unended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Published]:
    return built(tmp_path_factory.mktemp("unended"), Path(TOKENIZER), append_eod=False, output={"storage_format": "bin"})


def reference() -> list[list[int]]:
    opened = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    opened.encode_special_tokens = True
    return [opened.encode(text, add_special_tokens=False).ids for text in TEXTS]


def test_documents_are_their_tokens_alone(unended: tuple[Workspace, Published]) -> None:
    workspace, published = unended
    store = open_tokens(published.directory, "docs_train")
    assert [store.record(n, "tokens").tolist() for n in range(len(store))] == reference()
    assert published.manifest.recipe["append_eod"] is False and failing(workspace, published) == []
    trials = selftest(workspace, published)
    assert all(each.passed for each in trials) and "an end-of-text token in the middle" in {each.mutation for each in trials if each.tried}
    assert trace(workspace, "pretrain_tokens", 2).differs == ()


def test_one_that_is_ended_all_the_same_is_found(unended: tuple[Workspace, Published], tmp_path: Path) -> None:
    """The end-of-text token decodes to the text that somebody may have typed, so only its id gives it away."""
    workspace, published = built(tmp_path, Path(TOKENIZER), append_eod=False, output={"storage_format": "bin"})
    [file] = published.directory.rglob("sequence.bin")
    ids = np.fromfile(file, np.int32)
    ids[-1] = workspace.vocabulary(workspace.family(Pretrain)).eos_id
    ids.tofile(file)
    assert "row_integrity" in failing(workspace, resealed(published))


def test_a_begin_of_text_token_still_stands(tmp_path: Path) -> None:
    made = tokenizer(tmp_path / "tokenizer", "<|im_start|>")
    workspace, published = built(tmp_path, made, append_eod=False)
    assert failing(workspace, published) == []
    assert all(each.passed for each in selftest(workspace, published))


def test_weighted_documents_too(tmp_path: Path) -> None:
    rows = [{"semantic_data_array": [{"content": [{"a": "Not this."}, {"b": " But this."}], "semantic_loss_weight": [0, 1]}]}]
    workspace = workspace_in(
        tmp_path, minimal("pretrain", {"docs": domain(jsonl(tmp_path / "rows.jsonl", rows), "semantic")}, append_eod=False)
    )
    build(workspace, "pretrain_tokens")
    published = workspace.published("pretrain_tokens", "docs")
    assert published is not None and failing(workspace, published) == []
    store = open_tokens(published.directory, "docs_train")
    assert len(store.record(0, "tokens")) == len(store.record(0, "loss_mask")) and store.record(0, "loss_mask")[-1] == 1


def test_megatron_keeps_the_borders(unended: tuple[Workspace, Published], tmp_path: Path) -> None:
    store = open_store(export(unended[1], "megatron", tmp_path / "out"))
    assert [store.fetch_record(n, "sequence").tolist() for n in range(store.num_records)] == reference()


@pytest.mark.parametrize(("format", "options"), [("tlfs", {}), ("litdata", {"block_size": 4}), ("olmo", {}), ("astrai", {})])
def test_formats_that_would_make_one_text_of_all_are_refused(
    unended: tuple[Workspace, Published], tmp_path: Path, format: str, options: dict[str, Any]
) -> None:
    for source in (unended[1], unended[1].directory):
        with pytest.raises(
            ConfigError, match=r"append_eod: false.*one text\. Set append_eod: true, or use a format that keeps borders:.*megatron"
        ):
            export(source, format, tmp_path / "out", **options)


def test_a_configured_export_is_refused_as_well(tmp_path: Path) -> None:
    rows = domain(jsonl(tmp_path / "rows.jsonl", [{"text": text} for text in TEXTS]), "text")
    exports = {"flat": {"from": "pretrain_tokens", "to": "tlfs"}}
    workspace = workspace_in(tmp_path, minimal("pretrain", {"docs": rows}, append_eod=False, exports=exports))
    with pytest.raises(PrepAssetsError, match="would be one text"):
        build(workspace, "pretrain_export_flat")
