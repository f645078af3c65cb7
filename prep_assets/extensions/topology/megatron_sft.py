"""Lines of Megatron-LM's `SFTDataset` (``--sft``): a packed row each, as messages.

The trainer tokenizes the messages, begins a document at each system message, and pads each document to a multiple of twice its ranks of context
parallelism. With the prompt format ``identity`` messages are put together as they are, and what assistants say is trained. So untrained tokens of a
document become what a user says, trained ones what an assistant says, and the trainer has the tokens and the mask of the store::

    tokens      <|user|> 2 + 2 ? <|assistant|> 4 <|end|>      trained: 4 <|end|>
    messages    system ""      user "<|user|>2 + 2?<|assistant|>"      assistant "4<|end|>"

A document opens with an empty system message, as that is what tells documents apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.blocks import Block, row_blocks
from prep_assets.extensions.exports.readable import Options, Readable, Tokens
from prep_assets.extensions.exports.registry import FileName, Progress, exporter, reads
from prep_assets.stores.table import PACKED, Table
from prep_assets.stores.verification import WrittenFile

PAD = "<unk>"
"""The token that the prompt format ``identity`` pads with, and never trains."""


@exporter(
    "megatron_sft",
    PACKED,
    read_by="Megatron-LM",
    opens={
        "": (
            "--sft --data-path {folder}/{split}.jsonl --split 100,0,0",
            "--tokenizer-type SFTTokenizer --sft-tokenizer-prompt-format identity",
            "--seq-length {row_len} --micro-batch-size 1 --calculate-per-token-loss",
        )
    },
    tokenizer=True,
    kind="json",
)
def megatron_sft(source: Table, out: Path, progress: Progress, *, split: FileName = "train") -> None:
    """``<split>.jsonl``: a row a line, ``{"messages": [{"role": …, "content": …}, …]}``."""
    tokenizer = _tokenizer_of(source)
    pad, done = tokenizer.token_to_id(PAD), 0
    with WrittenFile(out / f"{split}.jsonl") as file:
        for block in row_blocks(source, progress):
            if pad is not None and (block.trained & (block.tokens == pad)).any():
                raise ConfigError(
                    f"{PAD} ({pad}) is trained in rows {done:,} to {block.done - 1:,}, and the trainer takes it for padding, which it never trains. "
                    "Leave these records out of the sources"
                )
            for row, documents in enumerate(_spans(block), done):
                texts = _texts(tokenizer, documents, f"row {row:,}", lacks_pad=pad is None)
                file.write(json.dumps({"messages": list(_messages(documents, texts))}, ensure_ascii=False).encode() + b"\n")
            done = block.done


def _tokenizer_of(source: Table) -> Any:
    if source.tokenizer is None:
        raise ConfigError(
            "export 'megatron_sft': texts are made with the family's tokenizer. Use prep-assets export, or exports of sft.yaml"
        )
    return source.tokenizer


Spans = list[tuple[list[int], bool]]
"""Ids of consecutive stretches of a document, and whether they are trained."""


def _spans(block: Block) -> Iterator[list[Spans]]:
    """Yield the documents of each row as stretches; the first of a document is untrained, as its first token is."""
    ends = np.cumsum(block.document_lengths)
    borders = np.unique(np.concatenate([[0], ends, np.flatnonzero(np.diff(block.trained)) + 1]))
    ids, trained, document = block.tokens.tolist(), block.trained.tolist(), 0
    for count in block.row_documents.tolist():
        first, last = (int(ends[number - 1]) if number else 0 for number in (document, document + count))
        rows: list[Spans] = [[] for _ in range(count)]
        low, high = np.searchsorted(borders, [first, last]).tolist()
        for begin, end in pairwise(borders[low : high + 1].tolist()):
            rows[int(np.searchsorted(ends, begin, "right")) - document].append((ids[begin:end], trained[begin]))
        yield rows
        document += count


def _texts(tokenizer: Any, documents: list[Spans], where: str, *, lacks_pad: bool) -> list[str]:
    """Return the text of each stretch of a row's documents, whose tokens it gives again, alone and with those around it.

    Args:
        lacks_pad: whether the tokenizer has no `PAD`; the trainer's is given it.

    Raises:
        ConfigError: it gives others; the message has the tokens.
    """
    spans = [ids for stretches in documents for ids, _ in stretches]
    texts: list[str] = tokenizer.decode_batch(spans, skip_special_tokens=False)
    at = np.cumsum([0, *map(len, documents)])
    whole = ["".join(texts[begin:end]) for begin, end in pairwise(at)]
    wanted = [*spans, *([token for ids, _ in stretches for token in ids] for stretches in documents)]
    for text, ids, again in zip([*texts, *whole], wanted, tokenizer.encode_batch([*texts, *whole], add_special_tokens=False), strict=True):
        if again.ids != ids:
            raise ConfigError(
                f"{where}: tokens {ids[:12]} … are {text[:60]!r} as text, which is tokenized to {again.ids[:12]} …, so the trainer would have others. "
                "They have a control token typed in a text, were cut inside a word, or came as ids. Export to aligned_parquet, which stores ids; of typed "
                "control tokens special_in_content: strip or refuse leaves none"
            )
    if lacks_pad and (text := next((text for text in whole if PAD in text), "")):
        first = max(0, text.index(PAD) - 30)
        raise ConfigError(
            f"{where}: {text[first : first + 60]!r} has {PAD} typed in it. The tokenizer lacks this token, so the trainer's is given it, and would read "
            "one token of padding there. Export to aligned_parquet, which stores ids, or leave this record out of the sources"
        )
    return texts


def _messages(documents: list[Spans], texts: list[str]) -> Iterator[dict[str, str]]:
    text = iter(texts)
    for stretches in documents:
        yield {"role": "system", "content": ""}
        for _, trained in stretches:
            yield {"role": "assistant" if trained else "user", "content": next(text)}


@reads("megatron_sft")
def read_megatron_sft(folder: Path, source: Table, options: Options) -> Readable:
    """Open a `megatron_sft` export with code independent of its writer: tokenized as the trainer does, message by message."""
    lines = (folder / f"{options['split']}.jsonl").read_bytes().splitlines()
    tokenizer = source.tokenizer
    assert tokenizer is not None

    def row(number: int) -> tuple[Tokens]:
        ids: list[int] = []
        trained: list[bool] = []
        starts: list[int] = []
        before = said = ""
        for message in json.loads(lines[number])["messages"]:
            role, content = message["role"], message["content"]
            if role == "system":
                starts.append(len(ids))
                said = ""
            elif (role, before) not in (("user", "system"), ("user", "assistant"), ("assistant", "user")) or not content:
                raise StoreError(f"row {number}: {role} says {content[:40]!r} after {before or 'nothing'}")
            told = tokenizer.encode(content, add_special_tokens=False).ids
            ids, trained, before, said = ids + told, trained + [role == "assistant"] * len(told), role, said + content
            if "<unk>" in said and tokenizer.token_to_id("<unk>") is None:
                raise StoreError(
                    f"row {number}: {content[:40]!r} has <unk> in it, which is one token of padding to the trainer's tokenizer"
                )
        return (Tokens(np.array(ids, np.int64), np.array(trained, bool), np.array(starts, np.int64)),)

    return Readable(len(lines), row)
