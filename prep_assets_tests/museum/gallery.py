"""What the exhibits of the museum share: tokenizers, small stores, historical faults put into them, and pictures of masks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.graph.graph import run_check, store_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.tokens import open_tokens, record_writer
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import TOKENIZER, build, checks_of, domain, jsonl, minimal, resealed, workspace_in

Message = Mapping[str, Any]
Chat = Sequence[Message]
USER, ASSISTANT = "user", "assistant"


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    """One message."""
    return {"role": role, "content": content, **more}


CHAT: Chat = (said(USER, "What is 2 + 2?"), said(ASSISTANT, "It is 4."), said(USER, "And 3 + 3?"), said(ASSISTANT, "It is 6."))
"""Two rounds of plain talk, for faults that any conversation shows."""


PLAIN: Mapping[str, Any] = {"engine": "reference", "output": {"storage_format": "bin"}}
"""Options of every store on show: its payload is plain arrays."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record of a token stream: its ids and its loss mask, both of one length."""

    ids: npt.NDArray[Any]
    mask: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Stand:
    """A small store on show, with the workspace that built it."""

    workspace: Workspace
    published: Published

    def verdict(self, check: str) -> Verdict:
        """What one of its checks says."""
        asset = self.published.manifest.asset
        chosen = next(each for each in checks_of(asset, self.workspace) if each.name == check)
        return run_check(chosen, self.workspace, self.published)

    def failing(self) -> list[str]:
        """The names of the checks that do not hold."""
        return [each.name for each in checks_of(self.published.manifest.asset, self.workspace) if not self.verdict(each.name).passed]

    def rows(self, stream: str = "train") -> list[Row]:
        """The records of a stream."""
        store = open_tokens(self.published.directory, stream)
        found = []
        for at in range(len(store)):
            ids = np.array(store.record(at, "tokens"))
            found.append(Row(ids, np.array(store.record(at, "loss_mask")) if "loss_mask" in store.arrays else np.ones(len(ids), np.uint8)))
        return found

    def row(self, at: int = 0, stream: str = "train") -> Row:
        """One record of a stream."""
        return self.rows(stream)[at]

    def texts(self, row: Row) -> list[str]:
        """Each token of a row as text."""
        vocabulary = store_of(self.workspace, self.published).vocabulary
        return [vocabulary.decode(row.ids[at : at + 1]) for at in range(len(row.ids))]

    def text(self, ids: npt.NDArray[Any]) -> str:
        """What ids decode to."""
        return store_of(self.workspace, self.published).vocabulary.decode(ids)

    def token(self, text: str) -> int:
        """The id of a control token."""
        return int(store_of(self.workspace, self.published).vocabulary.backend.token_to_id(text))

    def with_rows(self, change: Callable[[list[Row]], list[Row]], stream: str = "train") -> Stand:
        """The same store with other rows and a manifest that fits them, so that file hashes give nothing away."""
        changed = change(self.rows(stream))
        store = open_tokens(self.published.directory, stream)
        dtypes = {key: store.arrays[key].dtype.name for key in store.arrays}
        origin = np.array(store.file), np.array(store.row)
        shutil.rmtree(self.published.directory / stream)
        shutil.rmtree(self.published.directory / f"{stream}.index")
        with record_writer("bin", self.published.directory, stream, dtypes) as writer:
            lengths = np.array([len(row.ids) for row in changed], np.int64)
            block = {"tokens": np.concatenate([row.ids for row in changed]), "loss_mask": np.concatenate([row.mask for row in changed])}
            writer.append({key: block[key] for key in dtypes}, lengths, *(each.tolist() for each in origin))
        return Stand(self.workspace, resealed(self.published))

    def with_masks(self, change: Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any]], stream: str = "train") -> Stand:
        """The same with every row's mask changed: `change(ids, mask) -> mask`."""
        return self.with_rows(lambda rows: [Row(row.ids, change(row.ids, row.mask.copy()).astype(row.mask.dtype)) for row in rows], stream)


def chats(folder: Path, rows: Sequence[Chat | Mapping[str, Any]], *, tokenizer: str | Path = TOKENIZER, **options: Any) -> Stand:
    """`sft_tokens` of these conversations; a mapping is a row with columns of its own beside ``messages``."""
    listed = [row if isinstance(row, Mapping) else {"messages": list(row)} for row in rows]
    folder.mkdir(parents=True, exist_ok=True)
    source = jsonl(folder / "chats.jsonl", listed)
    families = minimal(
        "sft",
        {"chats": domain(source, "messages")},
        **{"template": "tokenizer", **PLAIN, **options},
    )
    families["sft"]["tokenizer"] = str(tokenizer)
    workspace = workspace_in(folder, families)
    build(workspace, "sft_raw", "chats")
    return Stand(workspace, build(workspace, "sft_tokens", "chats"))


def documents(folder: Path, texts: Sequence[str], *, tokenizer: str | Path = TOKENIZER, **options: Any) -> Stand:
    """`pretrain_tokens` of these texts, in the stream ``docs_train``."""
    folder.mkdir(parents=True, exist_ok=True)
    source = jsonl(folder / "docs.jsonl", [{"text": text} for text in texts])
    families = minimal("pretrain", {"docs": domain(source, "text")}, **{**PLAIN, **options})
    families["pretrain"]["tokenizer"] = str(tokenizer)
    workspace = workspace_in(folder, families)
    build(workspace, "pretrain_raw", "docs")
    return Stand(workspace, build(workspace, "pretrain_tokens", "docs"))


def pairs(folder: Path, rows: Sequence[tuple[str, str, str]], *, tokenizer: str | Path = TOKENIZER, **options: Any) -> Stand:
    """`preference_tokens_by_domain` of these prompts with a chosen and a rejected answer each."""
    folder.mkdir(parents=True, exist_ok=True)
    source = jsonl(folder / "pairs.jsonl", [dict(zip(("prompt", "chosen", "rejected"), row, strict=True)) for row in rows])
    families = minimal("preference", {"pairs": domain(source, "preference")}, **{**PLAIN, "test_fraction": 0.0, **options})
    families["preference"]["tokenizer"] = str(tokenizer)
    workspace = workspace_in(folder, families)
    build(workspace, "preference_raw", "pairs")
    build(workspace, "preferences_by_domain", "pairs")
    return Stand(workspace, build(workspace, "preference_tokens_by_domain", "pairs"))


def packed(folder: Path, rows: Sequence[Chat | Mapping[str, Any]], *, row_len: int = 64, **options: Any) -> Stand:
    """`sft_packed` of these conversations."""
    packing = {"strategy": "bfd", "row_len": row_len, **options.pop("packing", {})}
    stand = chats(folder, rows, preprocessing={"deduplicate": False}, packing=packing, **options)
    return Stand(stand.workspace, build(stand.workspace, "sft_packed"))


def tokenizer(
    folder: Path,
    *,
    template: str | None = None,
    special: Sequence[str] = (),
    structural: Sequence[str] = (),
    edit: Callable[[dict[str, Any]], None] | None = None,
    **config: Any,
) -> Path:
    """A copy of the shipped tokenizer with further tokens, another chat template, or `edit`ed in its ``tokenizer.json``.

    Args:
        special: tokens that are added and flagged special.
        structural: tokens that are added and not flagged, as Qwen3 has ``<think>``.
        config: keys of ``tokenizer_config.json``.
    """
    from tokenizers import AddedToken, Tokenizer

    shutil.copytree(TOKENIZER, folder, dirs_exist_ok=True)
    backend = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    backend.add_special_tokens(list(special))
    backend.add_tokens([AddedToken(text, normalized=False, special=False) for text in structural])
    described = json.loads(backend.to_str())
    if edit is not None:
        edit(described)
    (folder / "tokenizer.json").write_text(json.dumps(described, ensure_ascii=False), "utf-8")
    path = folder / "tokenizer_config.json"
    merged = {**json.loads(path.read_text("utf-8")), **config, **({} if template is None else {"chat_template": template})}
    path.write_text(json.dumps(merged, ensure_ascii=False), "utf-8")
    return folder


def first_run(mask: npt.NDArray[Any]) -> tuple[int, int]:
    """Start and end of the first run of trained tokens."""
    start = int((mask != 0).argmax())
    return start, start + int((mask[start:] == 0).argmax()) if (mask[start:] == 0).any() else len(mask)
