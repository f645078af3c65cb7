"""Without the extension: rows with files are rejected, its options unknown, and what is stored of files is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from prep_assets_tests.graph.pictures import TOKEN, pictures_in, tokenizer_in
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in

WITHOUT = """
import sys
from pathlib import Path
from prep_assets import plugins
found = plugins._ours()
plugins._ours = lambda: tuple(entry for entry in found if entry.group != "prep_assets.media")
from prep_assets.errors import PrepAssetsError
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_table
from prep_assets_tests.graph.workspaces import build, refusals
configs, stores, with_files = map(Path, sys.argv[1:])
published = build(Workspace(configs, stores), "sft_tokens", "c")
print(published.manifest.counts["kept"], [refusal.reason for refusal in refusals(published)])
try:
    open_table(with_files, "train")
except PrepAssetsError as error:
    print(error)
try:
    (configs / "sft.yaml").write_text((configs / "sft.yaml").read_text() + "\\nimage_token: <image>\\n")
    build(Workspace(configs, stores), "sft_tokens", "c")
except PrepAssetsError as error:
    print(error)
"""


def test_without_the_extension(tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": "Yes"}], **more}
        for question, more in (("Who <image>?", {"images": ["1.png"]}), ("Who?", {}))
    ]
    pictures, chats = pictures_in(tmp_path, "1.png"), jsonl(tmp_path / "chats.jsonl", rows)
    common = {"tokenizer": tokenizer_in(tmp_path), "test_fraction": 0}
    mine = workspace_in(
        tmp_path / "with", minimal("sft", {"c": domain(chats, "messages", image_dir=str(pictures))}, **common, image_token=TOKEN)
    )
    stored = build(mine, "sft_tokens", "c").directory
    bare = workspace_in(tmp_path / "without", minimal("sft", {"c": domain(chats, "messages")}, **common))
    command = [sys.executable, "-c", WITHOUT, *map(str, (bare.configs, tmp_path / "stores", stored))]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0] == "1 ['no_image_token']"
    assert "train.images says which files tokens stand for, and the extension `media` is not there" in said[1]
    assert "image_token" in "\n".join(said[2:])
