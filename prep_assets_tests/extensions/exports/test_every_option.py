"""No option of a format is accepted and ignored: for each kind of source that the format takes, it changes the files or is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.registry import Count, Size, export, exports
from prep_assets.extensions.rl.scored import Scored, group_columns, group_dtypes
from prep_assets.stores.table import GROUPS, PACKED, PAIRS, TOKENS, Schema, Table, open_table
from prep_assets.stores.writer import TableWriter
from prep_assets_tests.extensions.exports.conftest import ROW_LEN, draw_documents, write_lines, write_stream
from prep_assets_tests.extensions.exports.test_registry import contents
from prep_assets_tests.stores.payload import write_table

NEEDED: dict[str, dict[str, Any]] = {
    "aligned_parquet": {"eos_id": 5},
    "litdata": {"block_size": 5},
    "cerebras": {"max_seq_length": 64},
    "verl": {"data_source": "openai/gsm8k"},
}
OTHER: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("aligned_parquet", "eos_id"): [{"eos_id": 7}],
    ("cerebras", "max_seq_length"): [{"max_seq_length": 70}],
    ("cerebras", "max_num_img"): [{"max_num_img": 3}],
    ("hf_arrow", "pad_id"): [{"pad_id": 7}, {"pad_id": 7, "layout": "llama_factory"}],
    ("hf_arrow", "image_dir"): [{"image_dir": "d"}, {"image_dir": "d", "layout": "llama_factory"}],
    ("litdata", "block_size"): [{"block_size": 6}],
    ("megatron", "vocab_size"): [{"vocab_size": 1000}, {"vocab_size": 1000, "layout": "instruction"}],
    ("open_instruct", "dataset"): [{"dataset": {"number": "mine"}}],
    ("sentence_transformers", "negatives"): [{"negatives": 1, "leave_out": ["instruction"]}],
    ("sentence_transformers", "leave_out"): [{"leave_out": ["instruction"]}],
    ("sentence_transformers", "split"): [{"split": "held", "leave_out": ["instruction"]}],
}
"""Other values of options than their defaults, where their types do not tell any, or they mean something beside other options only."""


def others(name: str, option: str) -> list[dict[str, Any]]:
    """Other values of an option than its default, with the options beside it that may give it a meaning."""
    if (name, option) in OTHER or option in ("pad_id", "vocab_size"):
        return OTHER.get((name, option)) or [{option: 7 if option == "pad_id" else 1000}]
    hint, default = exports()[name].types[option], exports()[name].options[option].default
    kinds = {hint, *get_args(hint), *(each for part in get_args(hint) for each in get_args(part))}
    if words := [word for part in (hint, *get_args(hint)) if get_origin(part) is Literal for word in get_args(part)]:
        return [{option: word} for word in words if word != default]
    if hint in (Count, Size):  # of a file
        return [{option: 4 if hint == Count else 500}]
    assert kinds & {bool, str}, f"which values has {option!r} of {name}? It needs an entry in OTHER"
    return [{option: not default}] if bool in kinds else [{option: "held"}]


CASES = [
    pytest.param(name, kind, option, other, id=f"{name}-{kind.name}-{'-'.join(map(str, itertools.chain(*other.items())))}")
    for name, each in exports().items()
    for option in each.options
    for other in others(name, option)
    for kind in each.takes
]
RESTATED = {("megatron", PACKED), ("megatron", PAIRS), ("megatron", TOKENS)}
"""Where a layout may say what is the default."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[Schema, Table]:
    """One source of each kind."""
    folder = tmp_path_factory.mktemp("sources")
    write_stream(folder / "text", "train", draw_documents(1), masked=False)
    for name, seed in (("chosen", 3), ("rejected", 4)):
        write_stream(folder / "pairs", name, draw_documents(seed), masked=True)
    (folder / "groups").mkdir()
    with TableWriter(folder / "groups", "", GROUPS, group_dtypes("int32"), domains=["d"]) as groups:
        answers = (np.array([3, 4]), np.array([5]))
        scored = [Scored(np.array([1, 2]), answers, (np.array([1, 1]), np.array([1])), np.array([1.0, 0.0]), 0, 0, row) for row in range(5)]
        groups.append(*group_columns(scored))
    write_table(folder / "packed", "bin", [[([5] * 10, [1] * 10), ([5] * 12, [1] * 12)]] * 40, ROW_LEN)
    contrast = {"positives": ["a"], "negatives": ["b", "c"], "instruction": "Find"}
    write_lines(
        folder / "lines", "rl_prompts_train", [{"prompt": f"{n}?", "gold": float(n), "query": f"{n}?", **contrast} for n in range(9)]
    )
    opened = [open_table(folder / name) for name in ("text", "pairs", "groups", "packed", "lines")]
    found = {each.schema: each for each in opened}
    chat = [{"role": role, "content": [{"type": "text", "text": "So."}]} for role in ("user", "assistant")]
    lengths = found[TOKENS].lengths.tolist()  # the one token of a document is not trained
    with_chats = replace(found[TOKENS], chats=lambda: (chat if length > 1 else [] for length in lengths))
    return found | {TOKENS: with_chats, PACKED: replace(found[PACKED], tokenizer=letters())}


def letters() -> Tokenizer:
    """A tokenizer whose tokens are letters."""
    tokenizer = Tokenizer(WordLevel({chr(0x4E00 + number): number for number in range(100)}))
    tokenizer.pre_tokenizer, tokenizer.decoder = Split("", "isolated"), Fuse()
    return tokenizer


def with_chats(name: str, source: Table) -> Table:
    """The source of a format that needs whole chats: an answer where something is trained."""
    if exports()[name].chats != "whole":
        return source
    turns, lengths = [{"role": role, "content": "So."} for role in ("user", "assistant")], source.lengths.tolist()
    return replace(source, chats=lambda: ({"messages": turns if length > 1 else []} for length in lengths))


def needed(name: str, kind: Schema) -> Iterator[tuple[str, Any]]:
    for option, value in NEEDED.get(name, {}).items():
        if exports()[name].means(option, kind, {}):
            yield option, value


@pytest.mark.parametrize(("name", "kind", "option", "other"), CASES)
def test_an_option_changes_the_files_or_is_refused(
    sources: dict[Schema, Table], tmp_path: Path, name: str, kind: Schema, option: str, other: dict[str, Any]
) -> None:
    """`pad_id`, `neat`, `vocab_size`, `max_tokens_per_shard` and others were read for some kinds of source and ignored for the others."""
    beside = {**dict(needed(name, kind)), **{key: value for key, value in other.items() if key != option}}
    try:
        source = with_chats(name, sources[kind])
        before = contents(export(source, name, tmp_path / "a", **beside))
    except ConfigError:  # what stands beside it is refused already, such as a layout
        before = {}
    try:
        after = contents(export(source, name, tmp_path / "b", **{**beside, **other}))
    except ConfigError as error:
        assert option in str(error)
        return
    restated = (name, kind) in RESTATED and other == {"layout": "text" if kind is TOKENS else "instruction"}
    assert (after == before) == restated
