"""Counts the files of the package in which a function runs while one chat becomes a row of `sft_packed`: what somebody reads who follows it.

    PYTHONPATH=. python tools/files_of_a_chat.py

Checks are left out. One chat of two turns, in one file, is written by `sft_raw`, `sft_tokens` and `sft_packed`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from prep_assets.assets.graph import ASSETS
from prep_assets.assets.workspace import Workspace

ROOT = Path(__file__).resolve().parents[1]
CHAT = {"messages": [{"role": "user", "content": "Two and two?"}, {"role": "assistant", "content": "Four."}]}


def main() -> None:
    """Build, and list the files by room."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "chat.jsonl").write_text(json.dumps(CHAT) + "\n", "utf-8")
        (folder / "sft.yaml").write_text(
            f"tokenizer: {ROOT / 'configs' / 'tokenizer'}\ntemplate: tokenizer\npacking: {{row_len: 64, tail: pad}}\n"
            "mask: {user: mask, assistant: train}\ndomains: {chats: {files: [chat.jsonl], schema: messages}}\n",
            "utf-8",
        )
        workspace = Workspace(folder, folder / "stores")
        for asset, partition in (("sft_raw", "chats"), ("sft_tokens", "chats"), ("sft_packed", "")):
            build = ASSETS[asset].build(workspace, partition)
            threading.setprofile(note)
            sys.setprofile(note)
            try:
                published = build.propose()
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
            build.place.accept(published, {})
    package = ROOT / "prep_assets"
    files = sorted(Path(path).relative_to(package).as_posix() for path in seen if Path(path).is_relative_to(package))
    print("\n".join(files))
    print(f"{len(files)} files")


if __name__ == "__main__":
    main()
