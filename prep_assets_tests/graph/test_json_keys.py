"""ModelLink's --json-keys with several keys: one file, a token stream and a Megatron pair for each, in one run."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from prep_assets.engine import build
from prep_assets.stores.open import open_store
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import TOKENIZER, domain, jsonl, minimal

ROWS = [{"title": f"Title {n}", "text": f"A document about {n}.\n\nIt ends."} for n in range(5)]


def test_each_key_is_what_the_handler_writes(make: Make, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "rows.jsonl", ROWS)
    keys = ("title", "text")
    domains = {
        key: domain(file, "GeneralPretrainHandler", options={"text_key": key}, ignore=[each for each in keys if each != key])
        for key in keys
    }
    workspace = make(minimal("pretrain", domains, exports={"megatron": {"from": "pretrain_tokens", "to": "megatron"}}))
    build(workspace, "pretrain_export_megatron")
    tokenizer = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    end = tokenizer.token_to_id("<|endoftext|>")
    for key in keys:
        published = workspace.published("pretrain_export_megatron", key)
        assert published is not None and (published.directory / "train_text_document.idx").is_file()
        store = open_store(published.directory)
        found = [store.fetch_record(n, "sequence").tolist() for n in range(store.num_records)]
        assert found == [[*tokenizer.encode(row[key], add_special_tokens=False).ids, end] for row in ROWS]
