"""`selection`: rows of all formats, with everything that can become of a row, are where they belong; and every way to misplace one is seen."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep_assets.graph.graph import CHECKS, run_check
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.version_folders import Published
from prep_assets_tests.conftest import zstd
from prep_assets_tests.graph.workspaces import TOKENIZER, build, carried_out, jsonl, resealed, workspace_in
from prep_assets_tests.proofs import corruption
from prep_assets_tests.proofs.conftest import spoilable

WORDS = ("river", "table", "green", "seven", "quickly", "under", "stone", "music", "paper", "winter")


def words(number: int, count: int = 6) -> str:
    draw = random.Random(number)
    return " ".join(draw.choice(WORDS) for _ in range(count)) + f" {number}"


def chats(count: int, first: int = 0) -> list[dict[str, Any]]:
    rows = []
    for number in range(first, first + count):
        answer = words(number, 400 if number % 17 == 5 else 6) if number % 13 != 4 else " "
        messages = [{"role": "user", "content": words(-number)}, {"role": "assistant", "content": answer}]
        rows.append({"messages": messages, "language": "en" if number % 7 else "de", "score": number % 5})
    return rows


def with_duplicates(rows: Sequence[Any]) -> list[Any]:
    return [*rows[: len(rows) // 2], rows[1], *rows[len(rows) // 2 :], rows[2], rows[1]]


def spoiled_lines(path: Path, rows: Sequence[Any]) -> Path:
    """JSONL with blank lines and lines that are no objects between the rows."""
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    lines[3:3] = ["", "{broken", "[1]", '{"messages": NaN}', "   "]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def csv_file(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        file.write("ragged\n")
    return path


def compressed(path: Path, opener: Callable[..., Any], data: bytes) -> Path:
    with opener(path, "wb") as file:
        file.write(data)
    return path


@pytest.fixture(scope="module")
def quirky(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Stores of rows of every fate: unreadable, filtered, duplicates, too long, refused by their schema, beyond a limit, held out."""
    folder = tmp_path_factory.mktemp("quirky")
    rows = with_duplicates(chats(120))
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    pq.write_table(pa.Table.from_pylist(rows), folder / "table.parquet", row_group_size=20)
    with pa.ipc.new_file(folder / "table.arrow", pa.Table.from_pylist(rows).schema) as sink:
        sink.write_table(pa.Table.from_pylist(rows))
    plain = [{"instruction": words(n), "output": words(-n)} for n in range(40)]
    shared = [{**row, "domain": ("one", "two")[number % 2]} for number, row in enumerate(chats(60, 500))]
    domains: dict[str, Any] = {
        "lines": {"files": [str(spoiled_lines(folder / "lines.jsonl", rows))], "where": {"language": "en", "score": {"<": 4}}},
        "limited": {
            "files": [str(jsonl(folder / "a.jsonl", rows)), str(jsonl(folder / "b.jsonl", chats(60, 200)))],
            "max_items": 150,
            "where": {"language": {"not_in": ["de"]}},
            "test_files": [str(jsonl(folder / "t.jsonl", with_duplicates(chats(20, 300))))],
        },
        "list": {"files": [str(folder / "list.json")]},
        "parquet": {"files": [str(folder / "table.parquet")]},
        "arrow": {"files": [str(folder / "table.arrow")]},
        "zst": {"files": [str(compressed(folder / "x.jsonl.zst", zstd.open, text))]},
        "gz": {"files": [str(compressed(folder / "x.jsonl.gz", gzip.open, text))]},
        "xz": {"files": [str(compressed(folder / "x.jsonl.xz", lzma.open, text))]},
        "bz2": {"files": [str(compressed(folder / "x.jsonl.bz2", bz2.open, text))]},
        "csv": {"files": [str(csv_file(folder / "x.csv", with_duplicates(plain)))], "schema": "alpaca"},
        "one": {"files": [str(jsonl(folder / "shared.jsonl", shared))], "domain_key": "domain"},
        "two": {"files": [str(folder / "shared.jsonl")], "domain_key": "domain"},
    }
    (folder / "list.json").write_text(json.dumps(rows), "utf-8")
    for domain in domains.values():
        domain.setdefault("schema", "messages")
        domain["ignore"] = ["score"]
    documents = [{"text": words(number, 3 + number % 40)} for number in range(150)]
    (folder / "text.txt").write_text("\n".join(words(number) for number in range(80)) + "\n\n" + words(3) + "\n", "utf-8")
    pairs = [{"prompt": words(n), "chosen": words(n + 1), "rejected": words(n + 1 + (n % 9 != 3))} for n in range(150)]
    golds = [{"question": words(n), "answer": f"so\n#### {n}" if n % 11 else "nothing"} for n in range(150)]
    groups = [{"prompt": words(n), "responses": ["yes", "no"][: 1 + n % 2], "rewards": [1.0, 0.5]} for n in range(60)]
    more = {"tokenizer": TOKENIZER, "test_fraction": 0.2, "output": {"storage_format": "bin"}}
    families = {
        "sft": {**more, "preprocessing": {"max_seq_len": 256}, "packing": {"row_len": 1024}, "domains": domains},
        "pretrain": {
            **more,
            "preprocessing": {"min_chars": 30, "max_chars": 400, "max_seq_len": 120},
            "domains": {
                "docs": {"files": [str(jsonl(folder / "docs.jsonl", with_duplicates(documents)))], "schema": "text"},
                "text": {"files": [str(folder / "text.txt")], "schema": "text"},
                "file": {"files": [str(compressed(folder / "note.txt.gz", gzip.open, words(9).encode()))], "schema": "text", "txt": "file"},
            },
        },
        "preference": {
            **more,
            "max_per_source": 120,
            "domains": {
                name: {"files": [str(jsonl(folder / name / "same.jsonl", with_duplicates(rows)))], "schema": "preference"}
                for name, rows in (("one", pairs[:70]), ("two", pairs[60:]))
                if not (folder / name).mkdir()
            },
        },
        "rl": {
            **more,
            "domains": {
                "gsm": {"files": [str(jsonl(folder / "gsm.jsonl", with_duplicates(golds)))], "schema": "gsm8k"},
                "scored": {"files": [str(jsonl(folder / "scored.jsonl", with_duplicates(groups)))], "schema": "group"},
            },
        },
    }
    workspace = workspace_in(folder, families)
    for family, options in families.items():
        for name in options["domains"]:
            build(workspace, f"{family}_raw", name)
    for asset, partition in STORES:
        build(workspace, asset, partition)
    return workspace


SFT = ("lines", "limited", "list", "parquet", "arrow", "zst", "gz", "xz", "bz2", "csv", "one", "two")
STORES = [
    *(("sft_tokens", name) for name in SFT),
    *(("pretrain_tokens", name) for name in ("docs", "text", "file")),
    ("preferences_by_domain", "one"),
    ("preferences_by_domain", "two"),
    ("rl_prompts_by_domain", "gsm"),
    ("rl_groups_by_domain", "scored"),
]


def selection(workspace: Workspace, published: Published) -> Verdict:
    check = next(check for check in CHECKS[published.manifest.asset] if check.name == "selection")
    return carried_out(run_check(check, workspace, published))


@pytest.mark.parametrize(("asset", "partition"), STORES)
def test_a_clean_store_holds(quirky: Workspace, asset: str, partition: str) -> None:
    published = quirky.published(asset, partition)
    assert published is not None
    verdict = selection(quirky, published)
    assert verdict.passed, verdict.summary
    counts = published.manifest.counts
    assert (verdict.numbers["rows_read_again"], verdict.numbers["rows_stored"]) == (counts["read"], counts["kept"])
    assert verdict.numbers["rows_refused"] == sum(counts["refused"].values())


# -- corruptions ------------------------------------------------------------------------------------------------------------------------

TRAIN = {
    "pretrain_tokens": "{}_train",
    "sft_tokens": "train",
    "preferences_by_domain": "preferences",
    "rl_prompts_by_domain": "rl_prompts_train",
}
HELD_OUT = {
    "pretrain_tokens": "{}_dev",
    "sft_tokens": "dev",
    "preferences_by_domain": "preferences_test",
    "rl_prompts_by_domain": "rl_prompts_test",
}
SPOILED = [
    ("sft_tokens", "limited"),
    ("pretrain_tokens", "docs"),
    ("preferences_by_domain", "one"),
    ("rl_prompts_by_domain", "gsm"),
]
Spoil = Callable[[Published, str, str], None]


def take(published: Published, stream: str, which: Callable[[corruption.Stored], bool] | None = None) -> corruption.Stored:
    """Take one record out of a stream."""
    taken: list[corruption.Stored] = []

    def change(records: list[corruption.Stored]) -> list[corruption.Stored]:
        at = next(number for number, record in enumerate(records) if number > 2 and (which is None or which(record)))
        taken.append(records[at])
        return records[:at] + records[at + 1 :]

    corruption.records(published, stream, change)
    return taken[0]


def put(published: Published, stream: str, record: corruption.Stored) -> None:
    """Put a record where the order of the source wants it."""

    def change(records: list[corruption.Stored]) -> list[corruption.Stored]:
        if "source" in record.origin:
            return [*records, record]
        return sorted([*records, record], key=lambda each: (each.origin["file"], each.origin["row"]))

    corruption.records(published, stream, change)


def identity(published: Published, origin: dict[str, int]) -> str:
    """The record id of a place, as the quarantine of this workspace has it."""
    names = {"limited": ("a.jsonl", "b.jsonl", "t.jsonl"), "docs": ("docs.jsonl",)}
    names |= {"one": ("same.jsonl",), "gsm": ("gsm.jsonl",)}
    return f"{names[published.manifest.partition][origin['file']]}:{origin['row']}"


def refusal(published: Published, record: corruption.Stored, why: str) -> dict[str, Any]:
    stage, reason = why.split("/")
    return {"id": identity(published, record.origin), "stage": stage, "reason": reason, "detail": "", "payload": "{}", "payload_length": 2}


def refused_for(why: str) -> Spoil:
    """A record is gone, and the quarantine says why, which is not so."""

    def spoil(published: Published, train: str, held_out: str) -> None:
        record = take(published, train)
        corruption.quarantine(published, lambda lines: [*lines, refusal(published, record, why)])

    return spoil


def vanished(published: Published, train: str, held_out: str) -> None:
    """A record is gone without a word, and the manifest does not count it."""
    take(published, train)
    corruption.counts(published, kept=lambda kept: kept - 1, read=lambda read: read - 1)


def duplicate_kept(published: Published, train: str, held_out: str) -> None:
    """A duplicate stands in the training stream after all."""
    places: list[str] = []

    def change(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        at = next(number for number, line in enumerate(lines) if line["reason"] == "duplicate" and not line["id"].startswith("t."))
        places.append(lines[at]["id"])
        return lines[:at] + lines[at + 1 :]

    corruption.quarantine(published, change)
    row = int(places[0].rpartition(":")[2])
    origin = {"source": 0} if published.manifest.asset in ("preferences_by_domain", "rl_prompts_by_domain") else {}
    origin |= {"file": 0 if not places[0].startswith("b.") else 1, "row": row}
    original = take(published, train)
    put(published, train, original)
    put(published, train, corruption.Stored(original.content, origin))


def held_out_in_train(published: Published, train: str, held_out: str) -> None:
    put(published, train, take(published, held_out))


def train_in_held_out(published: Published, train: str, held_out: str) -> None:
    put(published, held_out, take(published, train))


def refused_twice(published: Published, train: str, held_out: str) -> None:
    """The quarantine has a line for a record that is stored."""
    record = take(published, train)
    put(published, train, record)
    corruption.quarantine(published, lambda lines: [*lines[1:], refusal(published, record, f"{lines[0]['stage']}/{lines[0]['reason']}")])


def stored_twice(published: Published, train: str, held_out: str) -> None:
    """One record stands there twice, instead of the next one."""
    corruption.records(published, train, lambda records: [*records[:5], records[4], *records[6:]])


def beyond(published: Published, train: str, held_out: str) -> None:
    """A record claims a row that is not read."""

    def change(records: list[corruption.Stored]) -> list[corruption.Stored]:
        last = max(range(len(records)), key=lambda at: sorted(records[at].origin.items()))
        records[last] = replace(records[last], origin={**records[last].origin, "row": 10_000})
        return records

    corruption.records(published, train, change)


CORRUPTIONS: dict[str, Spoil] = {
    "refused as a duplicate that is none": refused_for("deduplicate/duplicate"),
    "refused as filtered though it matches": refused_for("records/filtered_by_where"),
    "refused as unreadable though it is not": refused_for("records/invalid_json"),
    "refused for its length though it is short": refused_for("tokenize/too_long"),
    "refused by the schema though it reads it": refused_for("schema/empty_answer"),
    "vanished": vanished,
    "duplicate kept": duplicate_kept,
    "test rows in train": held_out_in_train,
    "train rows in the held-out part": train_in_held_out,
    "stored and refused": refused_twice,
    "stored twice": stored_twice,
    "a row beyond the limit": beyond,
}


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize(("asset", "partition"), SPOILED)
def test_a_misplaced_row_is_seen(quirky: Workspace, tmp_path: Path, asset: str, partition: str, name: str) -> None:
    """Audit, section 3: rows refused as duplicates that are none, duplicates kept, test rows in train, train rows in dev, pairs dropped."""
    workspace = spoilable(quirky, tmp_path, asset)
    published = workspace.published(asset, partition)
    assert published is not None
    CORRUPTIONS[name](published, TRAIN[asset].format(partition), HELD_OUT[asset].format(partition))
    published = resealed(Published(published.directory, Manifest.read(published.directory)))
    integrity = next(check for check in CHECKS[asset] if check.name == "file_hashes")
    assert run_check(integrity, workspace, published).passed, "hashes alone must not explain it"
    verdict = selection(workspace, published)
    assert not verdict.passed, verdict.summary
    assert verdict.worst is not None
