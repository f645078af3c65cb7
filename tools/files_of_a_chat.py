"""Counts the files of the package that chats pass on their way from a file to rows of `sft_packed`: what somebody reads who follows one.

    PYTHONPATH=. python tools/files_of_a_chat.py [--all]

A file counts where a function in it runs more often for many plain chats (four blocks of text) than for a few (a part of one), while `sft_raw`,
`sft_tokens` and `sft_packed` are written, so that what opens a tokenizer, certifies a template or publishes a store does not count, and neither do
checks. `--all` lists every file of which a function runs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from prep_assets.assets.graph import ASSETS
from prep_assets.assets.workspace import Workspace

ROOT = Path(__file__).resolve().parents[1]
FEW, MANY = 30, 16_000
SAID = "Two and two are four, and so are three and one. " * 20
Calls = Counter[tuple[str, str, int]]


def main() -> None:
    """Build for a few chats and for many, and list the files by room."""
    with tempfile.TemporaryDirectory() as name:
        _calls(Path(name), "warm", FEW)  # what is opened once in a process
        few, many = (_calls(Path(name), label, count) for label, count in (("few", FEW), ("many", MANY)))
    passed = many if "--all" in sys.argv else {each for each, count in many.items() if count > few[each]}
    package = ROOT / "prep_assets"
    files = sorted({Path(path).relative_to(package).as_posix() for path, *_ in passed if Path(path).is_relative_to(package)})
    print("\n".join(files))
    print(f"{len(files)} files")


def _calls(folder: Path, label: str, count: int) -> Calls:
    """How often each function of any module runs while so many chats are built."""
    calls: Calls = Counter()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            calls[frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_code.co_firstlineno] += 1

    place = folder / label
    place.mkdir()
    chats = ([{"role": "user", "content": f"{number}?"}, {"role": "assistant", "content": SAID}] for number in range(count))
    (place / "chats.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats), "utf-8")
    (place / "sft.yaml").write_text(
        f"tokenizer: {ROOT / 'configs' / 'tokenizer'}\ntemplate: tokenizer\npacking: {{row_len: 2048, tail: pad}}\n"
        "mask: {user: mask, assistant: train}\ndomains: {chats: {files: [chats.jsonl], schema: messages}}\n",
        "utf-8",
    )
    workspace = Workspace(place, place / "stores")
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
    return calls


if __name__ == "__main__":
    main()
