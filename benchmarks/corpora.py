"""Corpora made of the text that a machine has anyway: documentation, manual pages in many languages, and the source of Python packages.

Two machines have different text, so figures are compared within one run only. Documents are at most 20,000 characters long and differ from each other.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

ROOTS = (
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/share/perl",
    "/usr/include",
    sysconfig.get_paths()["stdlib"],
    sysconfig.get_paths()["purelib"],
)
LONGEST = 20_000
_NAMES = re.compile(r"\.(py|md|txt|rst|html|h|pod|pm|\d)(\.gz)?$|^(README|copyright|changelog)")


def documents(megabytes: float) -> Iterator[str]:
    """Different documents of about so many MB in all, taken from the roots in turn; with a number in front once all text is used."""
    left, seen = int(megabytes * 1e6), set[bytes]()
    for again in count():
        roots = [_texts(Path(root)) for root in ROOTS if Path(root).is_dir()]
        while roots:
            for root in list(roots):
                text = next(root, None)
                if text is None:
                    roots.remove(root)
                    continue
                text = text if not again else f"{again} {text}"
                digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
                if digest not in seen:
                    seen.add(digest)
                    yield text
                    left -= len(text.encode())
                if left <= 0:
                    return
        if not seen:
            raise SystemExit(f"there is no text under {', '.join(ROOTS)}; give a path: make bench TEXT=FILE.jsonl")


def _texts(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files):
            if not _NAMES.search(name):
                continue
            path = Path(folder, name)
            try:
                data = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
                text = data.decode()
            except (OSError, EOFError, UnicodeDecodeError):
                continue
            yield from (text[at : at + LONGEST] for at in range(0, len(text), LONGEST) if len(text) > 100)


def pretraining_file(path: Path, megabytes: float, given: Path | None = None) -> Path:
    """``{"text": …}`` lines, compressed where the name says so; made once."""
    if path.exists():
        return path
    fresh = path.with_name(f".new-{path.name}")
    with _writer(fresh, path.suffix == ".zst") as file:
        for text in documents(megabytes) if given is None else _given(given, megabytes):
            file.write(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
    fresh.replace(path)
    return path


def chats_file(path: Path, chats: int, given: Path | None = None) -> Path:
    """``{"messages": …}`` lines: so many chats of the lines of documents, a third of several rounds, or those of a file over and over; made once."""
    return _lines_of(path, chats, ({"messages": messages} for messages in (_chats() if given is None else _given_chats(given))))


def tools_file(path: Path, chats: int, given: Path | None = None) -> Path:
    """The same with `tools`, as JSON, two thirds of them with calls, half of them with reasoning; or the rows of a file over and over."""
    return _lines_of(path, chats, _with_tools() if given is None else _given_rows(given))


def _lines_of(path: Path, count: int, rows: Iterator[dict[str, Any]]) -> Path:
    if not path.exists():
        fresh = path.with_name(f".new-{path.name}")
        with fresh.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in islice(rows, count))
        fresh.replace(path)
    return path


def pairs_file(path: Path, pairs: int, given: Path | None = None) -> Path:
    """``{"prompt", "chosen", "rejected"}`` lines, lists of messages: chats with the last answer of the chat before as the rejected one; made once."""
    return _lines_of(path, pairs, _pairs(_chats() if given is None else _given_chats(given)))


def _pairs(chats: Iterator[list[dict[str, str]]]) -> Iterator[dict[str, Any]]:
    before = "I do not know."
    for *prompt, chosen in chats:
        yield {"prompt": prompt, "chosen": [chosen], "rejected": [{**chosen, "content": f"{before} No."}]}
        before = chosen["content"]


_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LIKE: dict[str, dict[str, Any]] = {
    "qwen-like": {"pattern": _PATTERN % "", "normalizer": {"type": "NFC"}},
    "llama3-like": {"pattern": _PATTERN % "{1,3}", "normalizer": None},
}
"""Tokenizers that may not be passed on: what decides their speed, their pattern and normalizer, can be had with another vocabulary."""


def like(folder: Path, name: str, base: Path) -> Path:
    """A tokenizer with the vocabulary of a byte-level one and the pattern and normalizer of another; made once."""
    made = folder / name
    if not made.exists():
        spec = json.loads((base / "tokenizer.json").read_text("utf-8"))
        split = {"type": "Split", "pattern": {"Regex": LIKE[name]["pattern"]}, "behavior": "Isolated", "invert": False}
        to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        spec |= {"normalizer": LIKE[name]["normalizer"], "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, to_bytes]}}
        made.mkdir(parents=True)
        (made / "tokenizer.json").write_text(json.dumps(spec), "utf-8")
        (made / "tokenizer_config.json").write_bytes((base / "tokenizer_config.json").read_bytes())
    return made


def _chats() -> Iterator[list[dict[str, str]]]:
    for number, text in enumerate(documents(1e6)):
        parts = [part.strip() for part in text.split("\n\n") if part.strip()]
        turns = 2 if number % 3 else 6
        for at in range(0, len(parts) - turns + 1, turns):
            yield [{"role": ("user", "assistant")[i % 2], "content": part} for i, part in enumerate(parts[at : at + turns])]


def _with_tools() -> Iterator[dict[str, Any]]:
    for number, messages in enumerate(_chats()):
        first, *others = messages
        words = re.findall(r"[a-z]{3,}", first["content"]) or ["look"]
        schema = {"type": "object", "properties": {word: {"type": "string", "description": f"The {word}."} for word in words[1:4]}}
        tools = [
            {"type": "function", "function": {"name": f"{word}_{number}", "description": " ".join(words[:12]), "parameters": schema}}
            for word in words[: 1 + number % 2]
        ]
        call = {"name": f"{words[0]}_{number}", "arguments": json.dumps({word: word.upper() for word in words[1:4]} | {"limit": number})}
        acts = [
            {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]},
            {"role": "tool", "content": json.dumps({"found": words})},
        ]
        thinks = {"reasoning_content": f"They ask about {words[-1]}."} if number % 2 else {}
        yield {"messages": [first, *acts[: 2 * (number % 3 > 0)], *others[:-1], {**others[-1], **thinks}], "tools": json.dumps(tools)}


def _given_chats(path: Path) -> Iterator[list[dict[str, str]]]:
    return (row["messages"] for row in _given_rows(path))


def _given_rows(path: Path) -> Iterator[dict[str, Any]]:
    for again in count():
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                first, *others = row["messages"]
                yield {**row, "messages": [{**first, "content": f"{again} {first['content']}"} if again else first, *others]}


def _given(path: Path, megabytes: float) -> Iterator[str]:
    left = megabytes * 1e6
    for again in count():
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                text = json.loads(line)["text"]
                text = f"{again} {text}" if again else text
                yield text
                left -= len(text.encode())
                if left <= 0:
                    return


def _writer(path: Path, compressed: bool):  # type: ignore[no-untyped-def]
    if not compressed:
        return path.open("wb")
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdFile(path, "wb")
