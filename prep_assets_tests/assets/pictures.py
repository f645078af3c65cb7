"""Workspaces whose records hold images."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from prep_assets_tests.assets.workspaces import TOKENIZER

TOKEN = "<image>"


def tokenizer_in(folder: Path) -> str:
    """The shipped tokenizer with an image token."""
    if not (folder / "tokenizer").is_dir():
        shutil.copytree(TOKENIZER, folder / "tokenizer")
        backend = Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
        backend.add_special_tokens([TOKEN])
        backend.save(str(folder / "tokenizer" / "tokenizer.json"))
    return str(folder / "tokenizer")


def pictures_in(folder: Path, *names: str) -> Path:
    """A folder with files that look like no picture at all: nobody opens them."""
    for name in names:
        path = folder / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"content of {name}".encode())
    return folder / "pictures"


def chat(text: str, *images: str, answer: str = "I see it.") -> dict[str, Any]:
    """A row for the schema ``messages``, whose text has a mark for each image."""
    return {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": answer}], "images": list(images)}
