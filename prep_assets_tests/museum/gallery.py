"""What the exhibits of the museum share: tokenizers, small stores, historical faults put into them, and pictures of masks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.graph.graph import run_check, store_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.table import TOKENS, open_stream
from prep_assets.stores.version_folders import Published
from prep_assets.stores.writer import TableWriter
from prep_assets_tests.graph.workspaces import (
    TOKENIZER,
    build,
    carried_out,
    checks_of,
    copy_of,
    domain,
    jsonl,
    minimal,
    resealed,
    workspace_in,
)

Message = Mapping[str, Any]
Chat = Sequence[Message]
Show = Callable[..., None]
"""The fixture `show` of the museum."""
USER, ASSISTANT = "user", "assistant"


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    """One message."""
    return {"role": role, "content": content, **more}


CHAT: Chat = (said(USER, "What is 2 + 2?"), said(ASSISTANT, "It is 4."), said(USER, "And 3 + 3?"), said(ASSISTANT, "It is 6."))
"""Two rounds of plain talk, for faults that any conversation shows."""
CALL: Message = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
TOOL: Message = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}},
}

TURNS = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
ASKED = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
"""The two parts of a template for plain chats: its turns, and the header of the answer that is asked for."""


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
        return carried_out(run_check(chosen, self.workspace, self.published))

    def failing(self) -> list[str]:
        """The names of the checks that do not hold."""
        return [each.name for each in checks_of(self.published.manifest.asset, self.workspace) if not self.verdict(each.name).passed]

    def rows(self, stream: str = "train") -> list[Row]:
        """The records of a stream."""
        store = open_stream(self.published.directory, stream)
        found = []
        for at in range(len(store)):
            ids = np.array(store.record(at, "tokens"))
            found.append(Row(ids, np.array(store.record(at, "loss_mask")) if "loss_mask" in store.columns else np.ones(len(ids), np.uint8)))
        return found

    def row(self, at: int = 0, stream: str = "train") -> Row:
        """One record of a stream."""
        return self.rows(stream)[at]

    def texts(self, row: Row) -> list[str]:
        """Each token of a row as text."""
        return [self.text(row.ids[at : at + 1]) for at in range(len(row.ids))]

    def trained(self, row: Row) -> str:
        """The text of a row's trained tokens."""
        return self.text(row.ids[row.mask != 0])

    def text(self, ids: npt.NDArray[Any]) -> str:
        """What ids decode to."""
        return store_of(self.workspace, self.published).vocabulary.decode(ids)

    def token(self, text: str) -> int:
        """The id of a control token."""
        return int(store_of(self.workspace, self.published).vocabulary.backend.token_to_id(text))

    def with_rows(self, change: Callable[[list[Row]], list[Row]], stream: str = "train") -> Stand:
        """A copy of the store with other rows and a manifest that fits them, so that file hashes give nothing away."""
        changed = change(self.rows(stream))
        workspace = copy_of(self.workspace, Path(mkdtemp(dir=self.workspace.configs.parents[1])) / "workspace")
        manifest = self.published.manifest
        published = workspace.built(manifest.asset, manifest.partition)
        store = open_stream(published.directory, stream)
        dtypes = {key: store.columns[key].values.dtype.name for key in store.columns}
        origin = np.array(store.origins.file), np.array(store.origins.row)
        shutil.rmtree(published.directory / stream)
        shutil.rmtree(published.directory / f"{stream}.index")
        with TableWriter(published.directory, stream, TOKENS, dtypes) as writer:
            lengths = np.array([len(row.ids) for row in changed], np.int64)
            block = {"tokens": np.concatenate([row.ids for row in changed]), "loss_mask": np.concatenate([row.mask for row in changed])}
            writer.append({key: block[key] for key in dtypes}, lengths, *(each.tolist() for each in origin))
        return Stand(workspace, resealed(published))

    def caught(self, check: str, change: Callable[[list[Row]], list[Row]], stream: str = "train") -> Stand:
        """The store with a historical fault in its rows, on which a check must fail."""
        wrong = self.with_rows(change, stream)
        assert not wrong.verdict(check).passed
        return wrong

    def mask_caught(
        self,
        check: str,
        change: Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any]],
        show: Show | None = None,
        shown: slice = slice(None),
    ) -> None:
        """Put a fault into every row's mask, `change(ids, mask) -> mask`, on which a check must fail; draw both masks of the first row."""
        wrong = self.caught(check, lambda rows: [Row(row.ids, change(row.ids, row.mask.copy()).astype(row.mask.dtype)) for row in rows])
        if show is not None:
            row, texts = self.row(), self.texts(self.row())
            show(as_it_was=(texts[shown], wrong.row().mask[shown]), here=(texts[shown], row.mask[shown]))


def stand_of(
    folder: Path,
    family: str,
    schema: str,
    rows: Sequence[Mapping[str, Any]] | Path,
    *assets: str,
    name: str = "shown",
    read_with: Mapping[str, Any] | None = None,
    **options: Any,
) -> Stand:
    """The last of these assets, each built of the one before it, with all of its checks passed.

    Args:
        rows: of the one domain, called `name`, or the file that has them.
        read_with: options of the schema.
        options: of the family.
    """
    workspace_folder = folder / "workspace"
    workspace_folder.mkdir(parents=True)
    source = rows if isinstance(rows, Path) else jsonl(workspace_folder / f"{name}.jsonl", rows)
    domains = {name: domain(source, schema, options=dict(read_with or {}))}
    plain_arrays = {"engine": "reference", "output": {"storage_format": "bin"}}
    workspace = workspace_in(workspace_folder, minimal(family, domains, **{**plain_arrays, **options}))
    return [Stand(workspace, build(workspace, asset, name)) for asset in assets][-1]


def chats(folder: Path, rows: Sequence[Chat | Mapping[str, Any]] | Path, *, tokenizer: str | Path = TOKENIZER, **options: Any) -> Stand:
    """`sft_tokens` of these conversations; a mapping is a row with columns of its own beside ``messages``."""
    listed = rows if isinstance(rows, Path) else [row if isinstance(row, Mapping) else {"messages": list(row)} for row in rows]
    further = {"template": "tokenizer", "tokenizer": str(tokenizer), **options}
    return stand_of(folder, "sft", "messages", listed, "sft_raw", "sft_tokens", name="chats", **further)


def documents(folder: Path, texts: Sequence[str], *, tokenizer: str | Path = TOKENIZER, **options: Any) -> Stand:
    """`pretrain_tokens` of these texts, in the stream ``docs_train``."""
    rows = [{"text": text} for text in texts]
    return stand_of(folder, "pretrain", "text", rows, "pretrain_raw", "pretrain_tokens", name="docs", tokenizer=str(tokenizer), **options)


def pairs(folder: Path, rows: Sequence[tuple[str, str, str]], *, tokenizer: str | Path = TOKENIZER, **options: Any) -> Stand:
    """`preference_tokens_by_domain` of these prompts with a chosen and a rejected answer each."""
    listed = [dict(zip(("prompt", "chosen", "rejected"), row, strict=True)) for row in rows]
    assets = ("preference_raw", "preferences_by_domain", "preference_tokens_by_domain")
    further = {"tokenizer": str(tokenizer), "test_fraction": 0.0, **options}
    return stand_of(folder, "preference", "preference", listed, *assets, name="pairs", **further)


def packed(folder: Path, rows: Sequence[Chat | Mapping[str, Any]], *, row_len: int = 64, **options: Any) -> Stand:
    """`sft_packed` of these conversations."""
    packing = {"strategy": "bfd", "row_len": row_len, **options.pop("packing", {})}
    workspace = chats(folder, rows, preprocessing={"deduplicate": False}, packing=packing, **options).workspace
    return Stand(workspace, build(workspace, "sft_packed"))


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
