"""Whole builds: the same bytes each time, one domain alone, payloads, verification."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from tokenizers import Tokenizer

from prep_assets.checks import relations
from prep_assets.checks.relations import outcomes
from prep_assets.checks.selection import Selection
from prep_assets.config.models import Sft
from prep_assets.engine import build
from prep_assets.engine.execute import stores_of
from prep_assets.errors import ConfigError
from prep_assets.extensions.lines.checks import LinesMatch
from prep_assets.graph.graph import EVERY, assets_of, run_check, store_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import open_published
from prep_assets.stores.table import Table, open_stream
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import (
    CONFIGS,
    SAMPLES,
    SHIPPED,
    SHIPPED_ASSETS,
    TOKENIZER,
    build_all,
    domain,
    failing,
    jsonl,
    minimal,
    shipped,
    tree,
    workspace_in,
)
from prep_assets_tests.stored import packed_rows

# The same inputs give the same bytes: in another folder, with domains listed in another order, with other hash seeds, by another engine.


BUILD = """
import sys
from pathlib import Path
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import build_all
for folder in sys.argv[1:]:
    build_all(Workspace(Path(folder, "configs"), Path(folder, "stores")))
"""


def backwards(storage_format: str) -> dict[str, dict[str, object]]:
    """The shipped configurations, every mapping's keys in the opposite order."""
    return {
        family: {**dict(reversed(options.items())), "domains": dict(reversed(options["domains"].items()))}
        for family, options in shipped(storage_format).items()
    }


@pytest.mark.parametrize("built", ["bin", pytest.param("h5", marks=pytest.mark.soak)], indirect=True)
def test_whole_trees_are_equal_to_the_byte(built: Workspace, tmp_path: Path) -> None:
    """What another process builds, in another folder and of another hash seed; files of h5 in `make soak`."""
    folder = tmp_path / "other folder"
    elsewhere = workspace_in(folder, backwards(built.family(Sft).output.storage_format))
    environment = {**os.environ, "PYTHONHASHSEED": "4242", "PYTHONPATH": str(CONFIGS.parent), "TZ": "Asia/Kathmandu"}
    subprocess.run([sys.executable, "-c", BUILD, folder], env=environment, cwd=folder, check=True)
    first, second = tree(built.stores), tree(elsewhere.stores)
    assert list(first) == list(second)
    assert [name for name in first if first[name] != second[name]] == []
    # 9 raw, 6 tokens of a domain, the template, the packed table; of preferences two of each domain and two merged, of RL as many and two of sums
    assert sum(name.endswith("manifest.json") for name in first) == 9 + 6 + 2 + (4 + 2) + (2 + 2 + 2)


def test_building_again_rewrites_nothing(copied: Workspace) -> None:
    before = {path: path.stat().st_mtime_ns for path in copied.stores.rglob("*") if path.is_file() and "versions" in path.parts}
    again = build_all(copied)
    assert all(published.reused for published in again.values())
    assert {path: path.stat().st_mtime_ns for path in before if path.name != ".lock"} == {
        p: t for p, t in before.items() if p.name != ".lock"
    }


def test_the_reference_engine_gives_the_same_payload(make: Make, copied: Workspace) -> None:
    slow = make({name: {**each, "engine": "reference"} for name, each in shipped().items()}, "slow")
    assert copied.engines(copied.family(Sft)).first.name != slow.engines(slow.family(Sft)).first.name
    fast_stores, slow_stores = build_all(copied), build_all(slow)
    assert all(published.reused for published in fast_stores.values())
    for key, published in fast_stores.items():
        assert slow_stores[key].manifest.content_hash == published.manifest.content_hash, key
        assert dict(slow_stores[key].manifest.files) == dict(published.manifest.files)
    assert fast_stores["sft_tokens", "chats"].manifest.build_key != slow_stores["sft_tokens", "chats"].manifest.build_key


# One domain's change builds the stores of that domain and what merges them; the files of all others stay, to the inode.


ROWS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "pretrain": ("pretrain", "text", {"text": "Words number {}."}),
    "sft": ("sft", "alpaca", {"instruction": "Say {}.", "output": "It is {}."}),
    "preference": ("preference", "preference", {"prompt": "Which is {}?", "chosen": "This, {}.", "rejected": "None."}),
    "rl": ("rl", "rl_prompt", {"prompt": "What is {} + 0?", "gold": "{}"}),
    "groups": ("rl", "group", {"prompt": "What is {}?", "responses": ["{}", "No."], "rewards": [1, 0]}),
}


def rows(kind: str, first: int, count: int) -> list[Any]:
    return [json.loads(json.dumps(ROWS[kind][2]).replace("{}", str(first + number))) for number in range(count)]


def made(folder: Path, kind: str) -> Workspace:
    family, schema, _ = ROWS[kind]
    files = {name: jsonl(folder / f"{name}.jsonl", rows(kind, 100 * at, 12)) for at, name in enumerate("abc")}
    options: dict[str, Any] = {"arithmetic": {"n": 5}} if family == "rl" else {"packing": {"row_len": 64}} if family == "sft" else {}
    return workspace_in(folder, minimal(family, {name: domain(file, schema) for name, file in files.items()}, **options))


def inodes(workspace: Workspace) -> dict[str, dict[tuple[str, str], set[int]]]:
    """Of each store that is current, by partition: the inodes of its files."""
    found: dict[str, dict[tuple[str, str], set[int]]] = {}
    for asset in assets_of(workspace).values():
        for partition in asset.partitions(workspace):
            store = workspace.built(asset.name, partition)
            files = {path.stat().st_ino for path in store.directory.rglob("*") if path.is_file()}
            found.setdefault(partition, {})[asset.name, partition] = files
    return found


def reads_files(name: str) -> bool:
    """Whether an asset is made from source files, through whatever others."""
    return name.endswith("_raw") or any(map(reads_files, (above.name for _, above in EVERY[name].inputs)))


@pytest.mark.parametrize("kind", ROWS)
def test_other_domains_stay_as_they_are(tmp_path: Path, kind: str) -> None:
    workspace, every = made(tmp_path, kind), list(assets_of(made(tmp_path, kind)))
    build(workspace, *every)
    before = inodes(workspace)
    jsonl(tmp_path / "b.jsonl", rows(kind, 100, 13))
    build(Workspace(workspace.configs, workspace.stores), *every)
    after = inodes(workspace)
    assert [after[name] for name in ("a", "c")] == [before[name] for name in ("a", "c")]
    assert set(before["b"]) == set(after["b"]) and all(not before["b"][store] & after["b"][store] for store in before["b"])
    for (name, _), files in before.get("", {}).items():
        assert bool(files & after[""][name, ""]) == (name in UNTOUCHED.get(kind, ()) or not reads_files(name))


UNTOUCHED = {"groups": ("rl_prompts", "rl_tokens")}
"""Merged stores that none of these domains is in."""


def test_a_domain_of_a_merged_asset_is_its_store_by_domain(tmp_path: Path) -> None:
    workspace = made(tmp_path, "preference")
    [built] = build(workspace, "preferences", partition="b")
    assert (built.asset, built.partition) == ("preferences_by_domain", "b") and workspace.published("preferences") is None
    assert workspace.published("preferences_by_domain", "a") is None
    with pytest.raises(ConfigError, match=r"preferences has no partition 'd'\. There are: a, b, c"):
        stores_of(workspace, ["preferences"], "d")


RICH = {
    "prompt": [{"role": "user", "content": "Call it."}],
    "chosen": [{"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}],
    "rejected": [{"role": "assistant", "content": "No."}],
}


def test_strings_become_messages_where_another_domain_has_messages(tmp_path: Path) -> None:
    """As one domain of all rows gives them."""
    plain = rows("preference", 0, 6)
    files = {"a": plain, "b": [RICH]}
    options = {"test_fraction": 0.3, "template": "qwen3"}
    several = {name: domain(jsonl(tmp_path / f"{name}.jsonl", content), "preference") for name, content in files.items()}
    whole = {"ab": domain(jsonl(tmp_path / "ab.jsonl", [*plain, RICH]), "preference")}
    found = []
    for number, domains in enumerate((several, whole)):
        workspace = workspace_in(tmp_path / str(number), minimal("preference", domains, **options))
        [pairs, tokens] = build(workspace, "preferences", "preference_tokens")
        files_of = [(pairs.published.directory / f"{name}.jsonl").read_bytes() for name in ("preferences", "preferences_test")]
        found.append((files_of, [(tokens.published.directory / f"{side}.h5").read_bytes() for side in ("chosen", "rejected")]))
    assert found[0] == found[1]
    assert all(isinstance(row["prompt"], list) for row in open_stream(pairs.published.directory, "preferences"))


def test_what_no_message_can_say_beside_messages_stops(tmp_path: Path) -> None:
    text = domain(jsonl(tmp_path / "a.jsonl", rows("preference", 0, 3)), "preference", options={"template": False})
    rich = domain(jsonl(tmp_path / "b.jsonl", [RICH]), "preference")
    workspace = workspace_in(tmp_path, minimal("preference", {"a": text, "b": rich}))
    with pytest.raises(ConfigError, match="preferences: messages are in b, and prompts and completions that no message can say in a"):
        build(workspace, "preferences")


# What is in the stores, against obvious re-implementations that use the reference tokenizer and the sources directly.


EOS, START, END, PAD = 0, 1, 2, 3


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")


def ids(text: str) -> list[int]:
    """Ids of ordinary text. No sample holds a control token's text."""
    assert "<|" not in text
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


def chatml(messages: list[dict[str, str]]) -> tuple[list[int], list[int]]:
    """Ids and loss mask of a conversation, piece by piece: the header and what it heads are one text; the answer is found by its length."""
    tokens: list[int] = []
    mask: list[int] = []
    for number, message in enumerate(messages):
        before = "\n" if number else ""
        lead = ids(before) if before else []
        header, whole = ids(f"{message['role']}\n"), ids(f"{message['role']}\n{message['content']}")
        assert whole[: len(header)] == header
        train = int(message["role"] == "assistant")
        tokens += [*lead, START, *whole, END]
        mask += [0] * len(lead) + [0] + [0] * len(header) + [train] * (len(whole) - len(header)) + [train]
    return [*tokens, *ids("\n")], [*mask, 0]


def rows_of(name: str) -> list[Any]:
    path = SAMPLES / name
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if path.suffix == ".zst":
        data = pyarrow.input_stream(pyarrow.BufferReader(data), compression="zstd").read()
    if ".json" in name and ".jsonl" not in name:
        return list(json.loads(data))
    return [json.loads(line) if "json" in name else {"text": line} for line in data.decode().split("\n") if line]


def records(store: Table, key: str) -> Iterator[list[Any]]:
    for i in range(len(store)):
        yield store.record(i, key).tolist()


def stores(workspace: Workspace) -> list[Published]:
    return [open_published(workspace.stores, name, each) for name, asset in SHIPPED_ASSETS.items() for each in asset.partitions(workspace)]


@pytest.mark.parametrize(("name", "file"), [("docs", "docs.jsonl.zst"), ("notes", "notes.txt")])
def test_pretraining_streams_are_the_documents_in_order_each_ended(built: Workspace, name: str, file: str) -> None:
    directory = open_published(built.stores, "pretrain_tokens", name).directory
    train, dev = (open_stream(directory, f"{name}_{split}") for split in ("train", "dev"))
    documents = [[*ids(row["text"]), EOS] for row in rows_of(file)]
    held_out = dev.origins.row.tolist()
    assert 0 < len(held_out) < len(documents)
    assert np.asarray(train.columns["tokens"].values[:]).tolist() == list(chain(*(d for i, d in enumerate(documents) if i not in held_out)))
    assert np.asarray(dev.columns["tokens"].values[:]).tolist() == list(chain(*(documents[i] for i in held_out)))
    assert np.asarray(train.columns["tokens"].values[:]).dtype == np.int32


def test_sft_tokens_and_masks_of_chats(built: Workspace) -> None:
    directory = open_published(built.stores, "sft_tokens", "chats").directory
    rows = [row["messages"] for row in rows_of("chats.jsonl")]
    seen = []
    for split in ("train", "dev"):
        store = open_stream(directory, split)
        for row, tokens, mask in zip(store.origins.row.tolist(), records(store, "tokens"), records(store, "loss_mask"), strict=True):
            assert (tokens, mask) == chatml(rows[row]), row
            seen.append(row)
    assert sorted(seen) == list(range(len(rows)))


def test_sft_answers_of_gsm8k_say_the_source_without_calculator_notes(built: Workspace) -> None:
    store = open_stream(open_published(built.stores, "sft_tokens", "gsm8k").directory, "train")
    rows = rows_of("gsm8k.jsonl")
    for row, tokens, mask in zip(store.origins.row.tolist(), records(store, "tokens"), records(store, "loss_mask"), strict=True):
        plain, at = "", rows[row]["answer"]
        while "<<" in at:
            head, _, rest = at.partition("<<")
            plain, at = plain + head, rest.partition(">>")[2]
        reasoning, _, final = (plain + at).partition("####")
        answer = f"<think>{reasoning.strip()}</think><answer>{final.strip()}</answer>"
        question = rows[row]["question"].strip()
        assert (tokens, mask) == chatml([{"role": "user", "content": question}, {"role": "assistant", "content": answer}])


@pytest.mark.parametrize(("table", "split"), [("sft_packed", "train"), ("sft_dev_packed", "dev")])
def test_a_packed_table_is_the_concatenation_of_its_documents(built: Workspace, table: str, split: str) -> None:
    packed = open_stream(open_published(built.stores, "sft_packed").directory, table)
    domains = {name: open_stream(open_published(built.stores, "sft_tokens", name).directory, split) for name in packed.pieces.domains}
    documents = {field: np.asarray(values).tolist() for field, values in packed.pieces.fields.items()}
    order = list(dict.fromkeys(zip(documents["source"], documents["record"], strict=True)))
    assert len(order) == sum(map(len, domains.values())), "every record once"
    for key, fill in (("tokens", PAD), ("loss_mask", 0)):
        stream = list(chain(*(domains[packed.pieces.domains[source]].record(record, key).tolist() for source, record in order)))
        row_len = SHIPPED["sft"]["packing"]["row_len"]
        stream += [fill] * (-len(stream) % row_len)
        table_rows = packed_rows(packed, key)
        assert table_rows.tolist() == [stream[at : at + row_len] for at in range(0, len(stream), row_len)]
    assert list(packed.pieces.domains) == sorted(SHIPPED["sft"]["domains"])


def test_the_packed_files_have_the_layout_that_trainers_open(built: Workspace) -> None:
    directory = open_published(built.stores, "sft_packed").directory
    packed = open_stream(directory, "sft_packed")
    shape = (len(packed), SHIPPED["sft"]["packing"]["row_len"])
    if (directory / "sft_packed.h5").is_file():
        import h5py

        with h5py.File(directory / "sft_packed.h5") as file:
            found = {key: (file[key].shape, file[key].dtype.name) for key in file}
        assert found == {"tokens": (shape, "int32"), "loss_mask": (shape, "int8")}
    else:
        shard = directory / "sft_packed" / "shard_0000"
        meta = json.loads((shard / "meta.json").read_text())
        assert meta["sequence"]["dtype"] == "int32"
        assert np.fromfile(shard / "sequence.bin", "<i4").size == shape[0] * shape[1]
        positions = np.fromfile(shard / "position_ids.bin", "<i4").reshape(shape)
        for row, offset, length in zip(
            *(np.asarray(packed.pieces.fields[key]).tolist() for key in ("row", "row_offset", "length")), strict=True
        ):
            assert positions[row, offset : offset + length].tolist() == list(range(length))


def _hh(row: dict[str, str]) -> dict[str, str]:
    prompt, _, chosen = row["chosen"].rpartition("\n\nAssistant:")
    rejected = row["rejected"].rpartition("\n\nAssistant:")[2]
    return {"prompt": prompt.strip(), "chosen": chosen.strip(), "rejected": rejected.strip()}


def _ultrafeedback(row: dict[str, Any]) -> dict[str, str]:
    return {"prompt": row["prompt"], "chosen": row["chosen"][-1]["content"], "rejected": row["rejected"][-1]["content"]}


def test_preference_pairs_are_those_of_the_sources_each_once(built: Workspace) -> None:
    directory = open_published(built.stores, "preferences").directory
    expected = [_hh(row) for row in rows_of("hh.jsonl.gz")] + [_ultrafeedback(row) for row in rows_of("ultrafeedback.jsonl")]
    train, test = (list(open_stream(directory, name)) for name in ("preferences", "preferences_test"))
    as_lines = sorted(map(json.dumps, [*train, *test]))
    assert as_lines == sorted({json.dumps(row) for row in expected})
    assert test and {row["prompt"] for row in train}.isdisjoint(row["prompt"] for row in test)


def test_preference_tokens_are_the_two_conversations_with_loss_on_the_answers(built: Workspace) -> None:
    pairs = list(open_stream(open_published(built.stores, "preferences").directory, "preferences"))
    directory = open_published(built.stores, "preference_tokens").directory
    for side in ("chosen", "rejected"):
        store = open_stream(directory, side)
        assert store.origins.row.tolist() == list(range(len(pairs)))
        for pair, tokens, mask in zip(pairs, records(store, "tokens"), records(store, "loss_mask"), strict=True):
            assert (tokens, mask) == chatml([{"role": "user", "content": pair["prompt"]}, {"role": "assistant", "content": pair[side]}])


def test_gsm8k_golds_are_the_last_line_of_the_answer(built: Workspace) -> None:
    directory = open_published(built.stores, "rl_prompts").directory
    gold = {
        row["question"].strip(): float(row["answer"].split("\n")[-1][len("#### ") :].replace(",", "")) for row in rows_of("gsm8k.jsonl")
    }
    train, test = (list(open_stream(directory, name)) for name in ("rl_prompts_train", "rl_prompts_test"))
    assert {row["prompt"]: row["gold"] for row in (*train, *test)} == gold
    assert len(train) + len(test) == len(gold) and test


def test_the_arithmetic_curriculum_is_right(built: Workspace) -> None:
    rows = list(open_stream(open_published(built.stores, "arithmetic_prompts").directory, "arithmetic_prompts"))
    assert len(rows) == 300
    for row in rows:
        question = row["prompt"].removeprefix("What is ").removesuffix("?")
        left, operator, right = question.split()
        worked = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[operator]
        assert row["gold"] == worked
    published = open_published(built.stores, "arithmetic_prompts")
    assert failing(built, published) == []
    for name in ("read", "kept", "level_seed"):
        wrong = replace(published.manifest, counts={**published.manifest.counts, name: 299})
        assert failing(built, replace(published, manifest=wrong)) == ["source_match"]


def test_rl_tokens_end_with_the_generation_prompt(built: Workspace) -> None:
    directory = open_published(built.stores, "rl_tokens").directory
    for stream, asset, name in (("prompts", "rl_prompts", "rl_prompts_train"), ("arithmetic", "arithmetic_prompts", "arithmetic_prompts")):
        store = open_stream(directory, stream)
        prompts = [row["prompt"] for row in open_stream(open_published(built.stores, asset).directory, name)]
        for prompt, tokens in zip(prompts, records(store, "tokens"), strict=True):
            assert tokens == [START, *ids(f"user\n{prompt}"), END, *ids("\n"), START, *ids("assistant\n")]


# One reading of the sources for all checks that derive a store anew: whose fault is whose.


def test_what_stops_selection_fails_no_other_check(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"prompt": f"P{i}?", "chosen": "yes", "rejected": "no"} for i in range(20)]
    workspace = make(minimal("preference", {"p": domain(jsonl(tmp_path / "p.jsonl", rows), "preference")}))
    published = build_all(workspace, ["preference"])["preferences_by_domain", "p"]
    store = store_of(workspace, published)

    def stopped(self: Selection) -> Iterator[Any]:
        yield from ()
        raise ValueError("no ledger")

    names = {"source_match", "selection"}
    assert all(isinstance(each, Verdict) and each.passed for each in outcomes(store, names).values())
    monkeypatch.setattr(Selection, "blocks", stopped)
    found = outcomes(store, names)
    assert str(found["selection"]) == "no ledger" and found["source_match"] == outcomes(store, {"source_match"})["source_match"]
    assert isinstance(found["source_match"], Verdict) and found["source_match"].passed
    asked = replace(published, evidence=dict.fromkeys(names))
    said = {check.name: run_check(check, workspace, asked) for check in EVERY["preferences_by_domain"].checks if check.derived}
    assert said["selection"].summary == "the store cannot be read (ValueError: no ledger)" and said["source_match"].passed
    monkeypatch.setattr(relations, "outcomes", None)  # what is known is not found out again
    assert all(run_check(check, workspace, asked) == said[check.name] for check in EVERY["preferences_by_domain"].checks if check.derived)


def test_a_judge_that_raises_stops_alone(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"prompt": f"P{i}?", "chosen": "yes", "rejected": "no"} for i in range(20)]
    workspace = make(minimal("preference", {"p": domain(jsonl(tmp_path / "p.jsonl", rows), "preference")}))
    store = store_of(workspace, build_all(workspace, ["preference"])["preferences_by_domain", "p"])
    names = {"source_match", "selection", "source_texts"}

    def broken(self: LinesMatch, *_: Any) -> None:
        raise ValueError("no line")

    monkeypatch.setattr(LinesMatch, "_convert_row", broken)
    found = outcomes(store, names)
    assert str(found.pop("source_match")) == "no line" and all(isinstance(each, Verdict) and each.passed for each in found.values())
