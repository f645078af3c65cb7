"""The mutation kit: every check passes on a clean store, and every corruption that it claims to see makes it fail.

Manifests are rewritten to fit each corruption, so that `file_hashes` holds and only the named check can tell.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from tokenizers import Tokenizer

from prep_assets.assets.graph import CHECKS, run_check
from prep_assets.assets.workspace import Workspace
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.published import Published
from prep_assets_tests.assets.workspaces import SHIPPED, TOKENIZER, resealed, verdicts
from prep_assets_tests.proofs import corruption
from prep_assets_tests.proofs.corruption import Ragged, Spoil

EOS, START, END, PAD = 0, 1, 2, 3


DOMAINS = {
    **dict.fromkeys(("preferences_by_domain", "preference_tokens_by_domain"), "hh"),
    **dict.fromkeys(("rl_prompts_by_domain", "rl_tokens_by_domain"), "gsm8k"),
    "rl_groups_by_domain": "scored",
}
"""Which store of an asset is spoiled."""


@dataclass(frozen=True)
class Mutation:
    """A corruption and the check that must see it."""

    name: str
    asset: str
    check: str
    spoil: Spoil
    partition: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition", self.partition or DOMAINS.get(self.asset, ""))


# -- masks ------------------------------------------------------------------------------------------------------------------------------


def on_mask(stream: str, change: Any) -> Spoil:
    """Change the mask of record 5: `change(ids, mask) -> mask`."""

    def spoil(published: Published) -> None:
        ragged = Ragged(published, stream)
        here = ragged.span(5)
        ragged.mask[here] = change(np.array(ragged.tokens[here]), np.array(ragged.mask[here]))
        ragged.mask.flush()

    return spoil


def first_run(mask: npt.NDArray[Any]) -> tuple[int, int]:
    """The first run of trained tokens."""
    start = int(mask.argmax())
    return start, start + int((mask[start:] == 0).argmax())


def with_header(ids: npt.NDArray[Any], mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    start, _ = first_run(mask)
    opening = int(np.flatnonzero(ids[:start] == START)[-1])
    mask[opening:start] = 1
    return mask


def with_line_break_of_the_header(_: npt.NDArray[Any], mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    mask[first_run(mask)[0] - 1] = 1
    return mask


def without_stop(ids: npt.NDArray[Any], mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    mask[first_run(mask)[1] - 1] = 0
    return mask


def without_first_token(_: npt.NDArray[Any], mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    mask[first_run(mask)[0]] = 0
    return mask


def with_hole(_: npt.NDArray[Any], mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    start, end = first_run(mask)
    mask[(start + end) // 2] = 0
    return mask


def with_user_turn(ids: npt.NDArray[Any], mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    first_end = int(np.flatnonzero(ids == END)[0])
    mask[3 : first_end + 1] = 1
    return mask


def with_break_after(_: npt.NDArray[Any], mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    mask[first_run(mask)[1]] = 1
    return mask


MASKS = {
    "shifted by +1": lambda _, mask: np.roll(mask, 1),
    "shifted by -1": lambda _, mask: np.roll(mask, -1),
    "header included": with_header,
    "line break of the header included": with_line_break_of_the_header,
    "line break after the stop included": with_break_after,
    "stop left out": without_stop,
    "first token left out": without_first_token,
    "hole in the middle": with_hole,
    "all ones": lambda _, mask: np.ones_like(mask),
    "user turn trained": with_user_turn,
    "inverted": lambda _, mask: 1 - mask,
    "weight of two": lambda _, mask: mask * 2,
}


def swap_masks(stream: str) -> Spoil:
    """Swap the masks of two records of one length that differ."""

    def spoil(published: Published) -> None:
        ragged = Ragged(published, stream)
        spans = [ragged.span(i) for i in range(len(ragged.ends))]
        pairs = ((a, b) for i, a in enumerate(spans) for b in spans[:i] if a.stop - a.start == b.stop - b.start)
        one, two = next((a, b) for a, b in pairs if not np.array_equal(ragged.mask[a], ragged.mask[b]))
        ragged.mask[one], ragged.mask[two] = ragged.mask[two].copy(), ragged.mask[one].copy()
        ragged.mask.flush()

    return spoil


def on_tokens(stream: str, change: Any) -> Spoil:
    """Change the ids of record 5: `change(ids, mask) -> ids`."""

    def spoil(published: Published) -> None:
        ragged = Ragged(published, stream)
        here = ragged.span(5)
        mask = None if ragged.mask is None else np.array(ragged.mask[here])
        ragged.tokens[here] = change(np.array(ragged.tokens[here]), mask)
        ragged.tokens.flush()

    return spoil


def other_answer_token(ids: npt.NDArray[Any], mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    at = first_run(mask)[0] + 1
    ids[at] = ids[at] + 1
    return ids


def other_stop(ids: npt.NDArray[Any], mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    ids[first_run(mask)[1] - 1] = EOS
    return ids


def put(place: int, value: int) -> Any:
    def change(ids: npt.NDArray[Any], _: Any) -> npt.NDArray[Any]:
        ids[place] = value
        return ids

    return change


def swapped_tokens(ids: npt.NDArray[Any], _: Any) -> npt.NDArray[Any]:
    at = int(np.flatnonzero(np.diff(ids[:-1]))[0])
    ids[at], ids[at + 1] = ids[at + 1], ids[at]
    return ids


def spelled_otherwise(stream: str) -> Spoil:
    """Two neighbouring tokens become two others that spell the same, which decoding cannot see."""

    def spoil(published: Published) -> None:
        vocabulary = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json").get_vocab()
        text = {number: piece for piece, number in vocabulary.items()}
        ids = Ragged(published, stream).tokens
        for at, (one, two) in enumerate(zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True)):
            joined, border = text[one] + text[two], len(text[one])
            cuts = (cut for cut in range(1, len(joined)) if cut != border and joined[:cut] in vocabulary and joined[cut:] in vocabulary)
            if min(one, two) > PAD and (cut := next(cuts, None)):
                ids[at], ids[at + 1] = vocabulary[joined[:cut]], vocabulary[joined[cut:]]
                ids.flush()
                return
        raise AssertionError("no such neighbours")

    return spoil


def moved_border(stream: str) -> Spoil:
    """Record 5 ends one token later, so that record 6 begins one later."""

    def spoil(published: Published) -> None:
        path = published.directory / f"{stream}.index" / "ends.npy"
        ends = np.load(path)
        ends[5] += 1
        np.save(path, ends)

    return spoil


def other_origin(stream: str) -> Spoil:
    """Two neighbouring records claim each other's row."""

    def spoil(published: Published) -> None:
        path = published.directory / f"{stream}.index" / "row.npy"
        rows = np.load(path)
        rows[[5, 6]] = rows[[6, 5]]
        np.save(path, rows)

    return spoil


def masked_document(published: Published) -> None:
    """A stream in which everything is trained gets a mask that leaves the start of a document out."""
    folder = published.directory / "docs_train" / "shard_0000"
    meta = json.loads((folder / "meta.json").read_text())
    size = meta["sequence"]["shape"][0]
    mask = np.ones(size, np.uint8)
    mask[:3] = 0
    mask.tofile(folder / "loss_mask.bin")
    (folder / "meta.json").write_text(json.dumps({**meta, "loss_mask": {"shape": [size], "dtype": "uint8"}}))


def foreign_row(stream: str) -> Spoil:
    """Record 5 claims a row that its source does not have."""

    def spoil(published: Published) -> None:
        path = published.directory / f"{stream}.index" / "row.npy"
        rows = np.load(path)
        rows[5] = 10_000
        np.save(path, rows)

    return spoil


# -- packed -----------------------------------------------------------------------------------------------------------------------------


def on_packed(key: str, change: Any) -> Spoil:
    """Change a table in place: `change(rows, used)`, `used` being the number of places taken in each row."""

    def spoil(published: Published) -> None:
        folder = published.directory / "sft_packed.documents"
        table = corruption.packed(published, key)
        change(table, np.bincount(np.load(folder / "row.npy"), np.load(folder / "length.npy")).astype(int))
        table.flush()  # type: ignore[attr-defined]

    return spoil


def assign(row: int, place: Any, value: Any) -> Any:
    def change(table: npt.NDArray[Any], used: npt.NDArray[Any]) -> None:
        where = int(used[row]) if place == "padding" else place
        table[row, where] = value

    return change


def swap_two(table: npt.NDArray[Any], _: npt.NDArray[Any]) -> None:
    at = int(np.flatnonzero(np.diff(table[0]))[0])
    table[0, [at, at + 1]] = table[0, [at + 1, at]]


def roll_row(table: npt.NDArray[Any], _: npt.NDArray[Any]) -> None:
    table[0] = np.roll(table[0], 1)


def swap_rows(table: npt.NDArray[Any], _: npt.NDArray[Any]) -> None:
    table[[0, 1]] = table[[1, 0]]


def on_documents(**changes: Any) -> Spoil:
    return lambda published: corruption.documents(published, **changes)


def at(place: int, step: int) -> Any:
    def change(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        values[place] += step
        return values

    return change


def border_moved(published: Published) -> None:
    """Piece 0 is one token longer and piece 1 one shorter, which adds up in every way."""
    corruption.documents(published, length=lambda v: at(1, -1)(at(0, 1)(v)), row_offset=at(1, 1))


def pieces_swapped(published: Published) -> None:
    """The first piece of row 1 stands before the last of row 0, so that rows are not in order."""
    rows = np.load(published.directory / "sft_packed.documents" / "row.npy")
    second = int((rows == 1).argmax())
    order = np.arange(len(rows))
    order[[second - 1, second]] = order[[second, second - 1]]
    fields = ("row", "row_offset", "length", "source", "record", "start")
    corruption.documents(published, **{field: lambda values: values[order] for field in fields})


def alias_of_the_record_before(published: Published) -> None:
    """A piece is said to begin before a record, at the very tokens of the one before."""
    folder = published.directory / "sft_packed.documents"
    records, starts, lengths = (np.load(folder / f"{field}.npy") for field in ("record", "start", "length"))
    sources = json.loads((folder / "sources.json").read_text())["sources"]
    source = np.load(folder / "source.npy")
    tokens = published.directory.parents[2] / "sft_tokens"
    sizes = {number: len(np.load(tokens / name / "current" / "train.index" / "ends.npy")) for number, name in enumerate(sources)}
    piece = int(np.flatnonzero((starts == 0) & (records + 1 < np.array([sizes[int(number)] for number in source])))[0])
    ends = np.load(tokens / sources[source[piece]] / "current" / "train.index" / "ends.npy")
    size = int(np.diff(ends, prepend=0)[records[piece]])
    assert lengths[piece] <= size
    corruption.documents(published, record=at(piece, 1), start=at(piece, -size))


def packed_twice(published: Published) -> None:
    """One record's tokens, mask and origin stand in the place of another piece as well."""
    folder = published.directory / "sft_packed.documents"
    row, offset, length, start = (np.load(folder / f"{field}.npy") for field in ("row", "row_offset", "length", "start"))
    whole = np.flatnonzero(start == 0)
    order = whole[np.argsort(length[whole], kind="stable")]
    one, two = next((int(a), int(b)) for a, b in pairwise(order) if length[a] == length[b])
    for key in ("sequence", "loss_mask"):
        table = corruption.packed(published, key)
        n = int(length[one])
        table[row[two], offset[two] : offset[two] + n] = table[row[one], offset[one] : offset[one] + n]
        table.flush()  # type: ignore[attr-defined]

    def copy(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        values[two] = values[one]
        return values

    corruption.documents(published, source=copy, record=copy)


def last_row_lost(published: Published) -> None:
    """The table ends one row early, and its documents with it; the manifest still counts it."""
    folder = published.directory / "sft_packed" / "shard_0000"
    row_len = SHIPPED["sft"]["packing"]["row_len"]
    meta = json.loads((folder / "meta.json").read_text())
    for key, entry in meta.items():
        path = folder / f"{key}.bin"
        values = np.fromfile(path, entry["dtype"])[:-row_len]
        values.tofile(path)
        entry["shape"] = [len(values)]
    (folder / "meta.json").write_text(json.dumps(meta))
    rows = np.load(published.directory / "sft_packed.documents" / "row.npy")
    kept = rows < rows.max()
    fields = ("row", "row_offset", "length", "source", "record", "start")
    corruption.documents(published, **{field: lambda values: values[kept] for field in fields})


def on_positions(change: Any) -> Spoil:
    """Change the position ids of the table: `change(ids of a row)`."""

    def spoil(published: Published) -> None:
        table = corruption.packed(published, "position_ids")
        table[:] = np.apply_along_axis(change, 1, np.array(table))
        table.flush()  # type: ignore[attr-defined]

    return spoil


def with_false_border(published: Published) -> None:
    """A document of the table is two, and position ids begin anew inside it."""
    folder = published.directory / "sft_packed.documents"
    fields = {field: np.load(folder / f"{field}.npy") for field in ("row", "row_offset", "length", "source", "record", "start")}
    piece = int(fields["length"].argmax())
    size = int(fields["length"][piece])
    first, second = size // 2, size - size // 2
    cut = {field: np.insert(values, piece + 1, values[piece]) for field, values in fields.items()}
    cut["length"][[piece, piece + 1]] = first, second
    cut["row_offset"][piece + 1] += first
    cut["start"][piece + 1] += first
    corruption.documents(published, **{field: lambda _, field=field: cut[field] for field in cut})
    positions = corruption.packed(published, "position_ids")
    place = int(fields["row_offset"][piece]) + first
    positions[int(fields["row"][piece]), place : place + second] = np.arange(second)
    positions.flush()  # type: ignore[attr-defined]


def document_as_padding(published: Published) -> None:
    """The last document of a row is padding instead, and the manifest counts it as left out."""
    folder = published.directory / "sft_packed.documents"
    fields = {field: np.load(folder / f"{field}.npy") for field in ("row", "row_offset", "length", "source", "record", "start")}
    row = fields["row"]
    piece = next(at for at in range(1, len(row)) if row[at] == row[at - 1] and (at + 1 == len(row) or row[at + 1] != row[at]))
    here = int(row[piece]), slice(int(fields["row_offset"][piece]), int(fields["row_offset"][piece] + fields["length"][piece]))
    trained = int((corruption.packed(published, "loss_mask")[here] != 0).sum())
    for key, value in (("sequence", PAD), ("loss_mask", 0), ("position_ids", 0)):
        table = corruption.packed(published, key)
        table[here] = value
        table.flush()  # type: ignore[attr-defined]
    corruption.documents(published, **{field: lambda values: np.delete(values, piece) for field in fields})
    length = int(fields["length"][piece])
    by = {"tokens": -length, "trained_tokens": -trained, "tokens_left_out": length}
    corruption.counts(published, **{key: lambda value, step=step: value + step for key, step in by.items()})


# -- lines ------------------------------------------------------------------------------------------------------------------------------


def on_row(name: str, number: int, **changes: Any) -> Spoil:
    """Set fields of one line; a function is given the old row."""

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[number] |= {key: value(rows[number]) if callable(value) else value for key, value in changes.items()}
        return rows

    return lambda published: corruption.lines(published, name, change)


def swapped_golds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    other = next(i for i, row in enumerate(rows) if row["gold"] != rows[0]["gold"])
    rows[0]["gold"], rows[other]["gold"] = rows[other]["gold"], rows[0]["gold"]
    return rows


def prompt_in_both(published: Published) -> None:
    first = json.loads((published.directory / "preferences.jsonl").open().readline())
    on_row("preferences_test", 0, prompt=first["prompt"])(published)


def without_field(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    del rows[3]["rejected"]
    return rows


def sides_swapped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every worse answer is called the better one."""
    return [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]


def one_swapped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*rows[:4], *sides_swapped(rows[4:5]), *rows[5:]]


def next_lines(field: str) -> Any:
    """Every line has the field of the next one."""
    return lambda rows: [{**row, field: following[field]} for row, following in zip(rows, [*rows[1:], rows[0]], strict=True)]


def cut(row: dict[str, Any]) -> str:
    return str(row["chosen"][: len(row["chosen"]) // 2])


def random_ids(ids: npt.NDArray[Any], _: Any) -> npt.NDArray[Any]:
    return np.random.default_rng(0).integers(10, 500, len(ids)).astype(ids.dtype)


def reversed_lines(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows[::-1]


AS_TEXT: dict[str, Any] = {"gold": lambda row: str(row["gold"])}
WHOLE: dict[str, Any] = {"gold": lambda row: int(row["gold"])}

# -- groups -----------------------------------------------------------------------------------------------------------------------------


RESPONSE_MASKS: dict[str, Any] = {
    "shifted by +1": lambda _, mask: np.roll(mask, 1),
    "shifted by -1": lambda _, mask: np.roll(mask, -1),
    "line break after the stop included": with_break_after,
    "stop left out": without_stop,
    "first token left out": without_first_token,
    "with a hole": with_hole,
}
REWARDS: dict[str, Any] = {
    "no number": lambda rewards: rewards * np.nan,
    "infinite": lambda rewards: rewards / 0,
    "shifted": lambda rewards: np.roll(rewards, 1),
    "cut to whole numbers": np.trunc,
    "negated": lambda rewards: -rewards,
    "off by a little": lambda rewards: rewards * (1 + 2**-20),
}


def on_rewards(change: Any) -> Spoil:
    """Change the rewards of group 5."""

    def spoil(published: Published) -> None:
        rewards = np.memmap(published.directory / "rewards" / "shard_0000" / "rewards.bin", "<f4", "r+")
        start, end = np.load(published.directory / "rewards.index" / "ends.npy")[4:6]
        with np.errstate(divide="ignore"):
            rewards[start:end] = change(np.array(rewards[start:end]))
        rewards.flush()

    return spoil


def moved_into_the_response(published: Published) -> None:
    """The last token of group 0's prompt becomes the first one of its responses, untrained: each conversation stays as it is."""
    folder = published.directory
    ends = {name: np.load(folder / f"{name}.index" / "ends.npy") for name in ("prompts", "responses", "rewards")}
    prompts, last = np.fromfile(folder / "prompts" / "shard_0000" / "sequence.bin", "<i4"), int(ends["prompts"][0]) - 1
    starts = [0, *ends["responses"].tolist()][: int(ends["rewards"][0])]
    moved = len(starts)
    for key, dtype, value in (("sequence", "<i4", prompts[last]), ("loss_mask", "u1", 0)):
        path = folder / "responses" / "shard_0000" / f"{key}.bin"
        np.insert(np.fromfile(path, dtype), starts, value).tofile(path)
    np.delete(prompts, last).tofile(folder / "prompts" / "shard_0000" / "sequence.bin")
    for name, by in (("prompts", -1), ("responses", moved)):
        meta = folder / name / "shard_0000" / "meta.json"
        entries = json.loads(meta.read_text())
        for entry in entries.values():
            entry["shape"][0] += by
        meta.write_text(json.dumps(entries))
        shift = np.minimum(np.arange(1, len(ends[name]) + 1), moved) if by > 0 else by
        np.save(folder / f"{name}.index" / "ends.npy", ends[name] + shift)


def response_of_the_next_group(published: Published) -> None:
    path = published.directory / "rewards.index" / "ends.npy"
    ends = np.load(path)
    ends[5] += 1
    np.save(path, ends)


# -- the books --------------------------------------------------------------------------------------------------------------------------


def one_more_kept(published: Published) -> None:
    corruption.counts(published, kept=lambda kept: kept + 1)


def one_more_read(published: Published) -> None:
    corruption.counts(published, read=lambda read: read + 1)


def invented_refusal(published: Published) -> None:
    corruption.counts(published, read=lambda read: read + 1, refused=lambda refused: {**refused, "schema/invented": 1})


def invented_quarantine_line(published: Published) -> None:
    line = {"id": "x:0", "stage": "schema", "reason": "r", "detail": "d", "payload": "{}", "payload_length": 2}
    corruption.quarantine_file(published).write_text(json.dumps(line) + "\n")


def duplicate_in_the_books(published: Published) -> None:
    """Manifest and quarantine agree that one row more was read, and was a duplicate."""
    path = corruption.quarantine_file(published)
    line = {"id": "x:0", "stage": "deduplicate", "reason": "duplicate", "detail": "d", "payload": "{}", "payload_length": 2}
    path.write_text(f"{path.read_text() if path.exists() else ''}{json.dumps(line)}\n")
    corruption.counts(published, read=lambda read: read + 1, refused=lambda refused: {**refused, "deduplicate/duplicate": 1})


def field_in_the_books(published: Published) -> None:
    manifest = published.manifest
    replace(manifest, counts={**manifest.counts, "fields_passed_over": {"chats": {"id": 1, "source": 1}}}).write(published.directory)


BOOKS = {
    "kept count wrong": one_more_kept,
    "read count wrong": one_more_read,
    "a refusal that nobody wrote down": invented_refusal,
    "a refusal that nobody counted": invented_quarantine_line,
}
WITH_BOOKS = {
    **{f"{family}_raw": domain for family, domain in (("pretrain", "docs"), ("sft", "chats"), ("preference", "hh"), ("rl", "gsm8k"))},
    "pretrain_tokens": "docs",
    "sft_tokens": "chats",
    **DOMAINS,
    **dict.fromkeys(("preferences", "preference_tokens", "rl_prompts", "arithmetic_tokens", "rl_tokens", "rl_groups"), ""),
}

NEGATED: dict[str, Any] = {"gold": lambda row: -row["gold"] if row["gold"] else 1}
OFF_BY_ONE: dict[str, Any] = {"gold": lambda row: row["gold"] + 1}
DECIMAL: dict[str, Any] = {"gold": lambda row: row["gold"] + 0.1}
TENFOLD: dict[str, Any] = {"gold": lambda row: row["gold"] * 10 if row["gold"] else 10}
NO_NUMBER: dict[str, Any] = {"gold": "many"}
GOLDS = {"sign": NEGATED, "digit": OFF_BY_ONE, "decimal": DECIMAL, "magnitude": TENFOLD, "no number": NO_NUMBER}

MUTATIONS = [
    *(Mutation(f"{n} ({s})", "sft_tokens", "mask_alignment", on_mask(s, c), "chats") for n, c in MASKS.items() for s in ("train", "dev")),
    *(
        Mutation(f"{n} ({s})", "preference_tokens_by_domain", "mask_alignment", on_mask(s, c))
        for n, c in MASKS.items()
        for s in ("chosen", "rejected")
    ),
    Mutation("masks swapped", "sft_tokens", "mask_alignment", swap_masks("train"), "gsm8k"),
    Mutation("masks swapped", "preference_tokens_by_domain", "mask_alignment", swap_masks("chosen")),
    Mutation("answer token replaced", "sft_tokens", "mask_alignment", on_tokens("train", other_answer_token), "chats"),
    Mutation("stop token replaced", "sft_tokens", "mask_alignment", on_tokens("train", other_stop), "chats"),
    Mutation("border moved", "sft_tokens", "mask_alignment", other_origin("train"), "chats"),
    Mutation("answer token replaced", "preference_tokens_by_domain", "mask_alignment", on_tokens("rejected", other_answer_token)),
    *(
        Mutation("all zeros", asset, "row_integrity", on_mask(stream, lambda _, mask: mask * 0), partition)
        for asset, stream, partition in (("sft_tokens", "train", "chats"), ("preference_tokens_by_domain", "rejected", ""))
    ),
    *(
        Mutation(f"id {value}", asset, "row_integrity", on_tokens(stream, put(1, value)), partition)
        for asset, stream, partition in (
            ("pretrain_tokens", "docs_train", "docs"),
            ("sft_tokens", "dev", "chats"),
            ("preference_tokens_by_domain", "chosen", ""),
            ("preference_tokens", "chosen", ""),
            ("rl_tokens_by_domain", "prompts", ""),
            ("arithmetic_tokens", "arithmetic", ""),
            ("rl_tokens", "arithmetic", ""),
        )
        for value in (-1, 1 << 20)
    ),
    Mutation("eos doubled", "pretrain_tokens", "row_integrity", on_tokens("docs_train", put(-2, EOS)), "docs"),
    Mutation("eos missing", "pretrain_tokens", "row_integrity", on_tokens("docs_train", put(-1, 100)), "docs"),
    Mutation("eos in the middle", "pretrain_tokens", "row_integrity", on_tokens("docs_dev", put(1, EOS)), "docs"),
    Mutation("border moved", "pretrain_tokens", "row_integrity", moved_border("docs_train"), "docs"),
    Mutation("a start that is not trained", "pretrain_tokens", "mask_alignment", masked_document, "docs"),
    Mutation("token replaced", "pretrain_tokens", "tokenization_identity", on_tokens("docs_train", put(1, 300)), "docs"),
    Mutation("tokens swapped", "pretrain_tokens", "tokenization_identity", on_tokens("docs_dev", swapped_tokens), "docs"),
    Mutation("another document's row", "pretrain_tokens", "tokenization_identity", other_origin("docs_train"), "docs"),
    *(
        Mutation(name, asset, "tokenization_identity", on_tokens(stream, change), partition)
        for asset, stream, partition in (("sft_tokens", "dev", "chats"), ("preference_tokens_by_domain", "chosen", ""))
        for name, change in (
            ("token of the question replaced", put(4, 300)),
            ("header replaced", put(0, END)),
            ("tokens swapped", swapped_tokens),
        )
    ),
    *(
        Mutation("same text in other tokens", asset, "tokenization_identity", spelled_otherwise(stream), partition)
        for asset, stream, partition in (
            ("pretrain_tokens", "docs_train", "docs"),
            ("sft_tokens", "train", "chats"),
            ("preference_tokens_by_domain", "chosen", ""),
        )
    ),
    Mutation("token replaced", "sft_packed", "mask_alignment", on_packed("sequence", assign(0, 7, 300))),
    Mutation("tokens swapped", "sft_packed", "mask_alignment", on_packed("sequence", swap_two)),
    Mutation("rows swapped", "sft_packed", "mask_alignment", on_packed("sequence", swap_rows)),
    Mutation("mask shifted", "sft_packed", "mask_alignment", on_packed("loss_mask", roll_row)),
    Mutation("mask all ones", "sft_packed", "mask_alignment", on_packed("loss_mask", assign(0, slice(None), 1))),
    Mutation("border moved", "sft_packed", "mask_alignment", border_moved),
    Mutation("another record", "sft_packed", "mask_alignment", on_documents(record=at(3, 1))),
    Mutation("another domain", "sft_packed", "mask_alignment", on_documents(source=lambda v: (v + 1) % 4)),
    Mutation("a domain that does not exist", "sft_packed", "mask_alignment", on_documents(source=at(0, 99))),
    Mutation("another start", "sft_packed", "mask_alignment", on_documents(start=at(0, 1))),
    Mutation("a start before the record", "sft_packed", "mask_alignment", alias_of_the_record_before),
    Mutation("record packed twice", "sft_packed", "mask_alignment", packed_twice),
    Mutation("id outside", "sft_packed", "row_integrity", on_packed("sequence", assign(0, 7, 1 << 20))),
    Mutation("negative id", "sft_packed", "row_integrity", on_packed("sequence", assign(0, 7, -100))),
    Mutation("padding trained", "sft_packed", "row_integrity", on_packed("loss_mask", assign(-1, "padding", 1))),
    Mutation("padding is no padding", "sft_packed", "row_integrity", on_packed("sequence", assign(-1, "padding", EOS))),
    Mutation("row untrained", "sft_packed", "row_integrity", on_packed("loss_mask", assign(2, slice(None), 0))),
    Mutation("negative weight", "sft_packed", "row_integrity", on_packed("loss_mask", assign(2, 9, -1))),
    Mutation("gap", "sft_packed", "row_integrity", on_documents(row_offset=at(1, 1))),
    Mutation("overlap", "sft_packed", "row_integrity", on_documents(length=at(0, 1))),
    Mutation("overflow", "sft_packed", "row_integrity", on_documents(length=at(-1, 1 << 20))),
    Mutation("empty piece", "sft_packed", "row_integrity", on_documents(length=lambda v: v * 0)),
    Mutation("pieces out of order", "sft_packed", "row_integrity", pieces_swapped),
    Mutation("a row without a piece", "sft_packed", "row_integrity", on_documents(row=lambda v: np.minimum(v, v.max() - 1))),
    Mutation("position ids run on", "sft_packed", "row_integrity", on_positions(lambda row: np.arange(len(row)))),
    Mutation("position ids all zero", "sft_packed", "row_integrity", on_positions(np.zeros_like)),
    Mutation("position ids from 1", "sft_packed", "row_integrity", on_positions(lambda row: row + 1)),
    Mutation("a border inside a document", "sft_packed", "row_integrity", with_false_border),
    Mutation("a document replaced by padding", "sft_packed", "mixture", document_as_padding),
    Mutation("another record", "sft_packed", "mixture", on_documents(record=at(3, 1))),
    Mutation("a piece cut short", "sft_packed", "mixture", on_documents(length=at(-1, -1))),
    *(
        Mutation(f"{key} wrong", "sft_packed", "mixture", lambda p, key=key: corruption.counts(p, **{key: lambda value: value + 1}))
        for key in ("tokens_left_out", "tokens_in_untrained_rows", "dev_tokens_left_out")
    ),
    Mutation("last row lost", "sft_packed", "accounting", last_row_lost),
    *(
        Mutation(f"{key} wrong", asset, "accounting", lambda p, key=key: corruption.counts(p, **{key: lambda value: value + 1}), partition)
        for asset, partition, keys in (
            ("sft_tokens", "chats", ("tokens", "trained_tokens", "kept_dev")),
            ("pretrain_tokens", "docs", ("tokens",)),
            ("preference_tokens_by_domain", "", ("tokens", "trained_tokens")),
            ("rl_tokens_by_domain", "", ("tokens",)),
        )
        for key in keys
    ),
    Mutation("a duplicate that is none, in the books alone", "sft_tokens", "selection", duplicate_in_the_books, "chats"),
    Mutation("a field that no row has", "sft_tokens", "selection", field_in_the_books, "chats"),
    *(
        Mutation(f"{key} wrong", "sft_packed", "accounting", lambda p, key=key: corruption.counts(p, **{key: lambda value: value + 1}))
        for key in ("rows", "tokens", "trained_tokens", "tokens_left_out", "dev_rows", "dev_tokens_left_out")
    ),
    Mutation("a piece cut short", "sft_packed", "accounting", on_documents(length=at(-1, -1))),
    Mutation("equal answers", "preferences_by_domain", "pair_sanity", on_row("preferences", 4, chosen=lambda row: row["rejected"])),
    *(
        Mutation(f"empty {f}", "preferences_by_domain", "pair_sanity", on_row("preferences", 0, **{f: " \n"}))
        for f in ("prompt", "chosen", "rejected")
    ),
    Mutation("empty answer in the test file", "preferences_by_domain", "pair_sanity", on_row("preferences_test", -1, chosen="")),
    Mutation("prompt in both files", "preferences_by_domain", "pair_sanity", prompt_in_both),
    Mutation("a field too many", "preferences_by_domain", "pair_sanity", on_row("preferences", 2, score=1)),
    Mutation("a field missing", "preferences_by_domain", "pair_sanity", lambda p: corruption.lines(p, "preferences", without_field)),
    Mutation(
        "strings and messages",
        "preferences_by_domain",
        "pair_sanity",
        on_row("preferences", 2, chosen=[{"role": "assistant", "content": "x"}]),
    ),
    *(Mutation(f"gold: {n}", "rl_prompts_by_domain", "gold_answers", on_row("rl_prompts_train", 9, **c)) for n, c in GOLDS.items()),
    *(Mutation(f"gold: {n}", "arithmetic_prompts", "gold_answers", on_row("arithmetic_prompts", 9, **c)) for n, c in GOLDS.items()),
    Mutation("gold in the test file", "rl_prompts_by_domain", "gold_answers", on_row("rl_prompts_test", 0, **OFF_BY_ONE)),
    Mutation("golds swapped", "rl_prompts_by_domain", "gold_answers", lambda p: corruption.lines(p, "rl_prompts_train", swapped_golds)),
    Mutation("question changed", "arithmetic_prompts", "gold_answers", on_row("arithmetic_prompts", 0, prompt="What is 1 + 1000?")),
    Mutation("one pair swapped", "preferences_by_domain", "source_match", lambda p: corruption.lines(p, "preferences", one_swapped)),
    Mutation("all pairs swapped", "preferences_by_domain", "source_match", lambda p: corruption.lines(p, "preferences", sides_swapped)),
    Mutation(
        "held-out pairs swapped", "preferences_by_domain", "source_match", lambda p: corruption.lines(p, "preferences_test", sides_swapped)
    ),
    Mutation("a foreign prompt", "preferences_by_domain", "source_match", on_row("preferences", 7, prompt="What is the capital of Peru?")),
    Mutation(
        "prompts of the next pair",
        "preferences_by_domain",
        "source_match",
        lambda p: corruption.lines(p, "preferences", next_lines("prompt")),
    ),
    Mutation("a truncated answer", "preferences_by_domain", "source_match", on_row("preferences", 3, chosen=cut)),
    Mutation("a space more", "preferences_by_domain", "source_match", on_row("preferences", 3, rejected=lambda row: row["rejected"] + " ")),
    Mutation("pairs of another row", "preferences_by_domain", "source_match", other_origin("preferences")),
    Mutation(
        "a prompt altered",
        "rl_prompts_by_domain",
        "source_match",
        on_row("rl_prompts_train", 5, prompt=lambda row: row["prompt"] + " Hurry."),
    ),
    Mutation(
        "prompts shifted", "rl_prompts_by_domain", "source_match", lambda p: corruption.lines(p, "rl_prompts_train", next_lines("prompt"))
    ),
    Mutation(
        "golds shifted", "rl_prompts_by_domain", "source_match", lambda p: corruption.lines(p, "rl_prompts_train", next_lines("gold"))
    ),
    Mutation("a held-out prompt altered", "rl_prompts_by_domain", "source_match", on_row("rl_prompts_test", 0, prompt="What is 1 + 1?")),
    *(
        Mutation(f"gold as {name}", asset, "source_match", on_row(file, 9, **change))
        for asset, file in (("rl_prompts_by_domain", "rl_prompts_train"), ("arithmetic_prompts", "arithmetic_prompts"))
        for name, change in (("text", AS_TEXT), ("a whole number", WHOLE))
    ),
    Mutation("gold as text", "rl_prompts_by_domain", "gold_answers", on_row("rl_prompts_train", 9, **AS_TEXT)),
    Mutation(
        "another right question", "arithmetic_prompts", "source_match", on_row("arithmetic_prompts", 3, prompt="What is 1 + 1?", gold=2.0)
    ),
    Mutation(
        "questions shifted", "arithmetic_prompts", "source_match", lambda p: corruption.lines(p, "arithmetic_prompts", reversed_lines)
    ),
    *(
        Mutation(f"{name} ({stream})", asset, "tokenization_identity", on_tokens(stream, change))
        for asset, stream in (("rl_tokens_by_domain", "prompts"), ("arithmetic_tokens", "arithmetic"))
        for name, change in (("random ids", random_ids), ("tokens swapped", swapped_tokens), ("token replaced", put(4, 300)))
    ),
    Mutation("another prompt's row", "rl_tokens_by_domain", "tokenization_identity", other_origin("prompts")),
    *(
        Mutation("a row that is not there", asset, "selection", foreign_row(stream), partition)
        for asset, stream, partition in (
            ("pretrain_tokens", "docs_train", "docs"),
            ("sft_tokens", "train", "chats"),
            ("preferences_by_domain", "preferences", ""),
            ("rl_prompts_by_domain", "rl_prompts_train", ""),
            ("rl_groups_by_domain", "prompts", ""),
        )
    ),
    *(
        Mutation("a line lost", asset, "selection", lambda p, stream=stream: corruption.records(p, stream, lambda rows: rows[1:]))
        for asset, stream in (
            ("preference_tokens_by_domain", "chosen"),
            ("rl_tokens_by_domain", "prompts"),
            ("arithmetic_tokens", "arithmetic"),
        )
    ),
    *(Mutation(n, "rl_groups_by_domain", "mask_alignment", on_mask("responses", c)) for n, c in RESPONSE_MASKS.items()),
    Mutation("answer token replaced", "rl_groups_by_domain", "mask_alignment", on_tokens("test/responses", put(0, 300))),
    Mutation("all zeros", "rl_groups_by_domain", "row_integrity", on_mask("responses", lambda _, mask: mask * 0)),
    *(
        Mutation(f"id {value} in {stream}", "rl_groups_by_domain", "row_integrity", on_tokens(stream, put(1, value)))
        for stream in ("prompts", "responses", "test/prompts")
        for value in (-1, 1 << 20)
    ),
    Mutation("token of the prompt replaced", "rl_groups_by_domain", "tokenization_identity", on_tokens("prompts", put(4, 300))),
    Mutation("tokens of the prompt swapped", "rl_groups_by_domain", "tokenization_identity", on_tokens("test/prompts", swapped_tokens)),
    Mutation("break after a response replaced", "rl_groups_by_domain", "tokenization_identity", on_tokens("responses", put(-1, 300))),
    Mutation("border of prompt and response moved", "rl_groups_by_domain", "tokenization_identity", moved_into_the_response),
    *(Mutation(n, "rl_groups_by_domain", "rewards", on_rewards(c)) for n, c in REWARDS.items()),
    Mutation("a response of another group", "rl_groups_by_domain", "rewards", response_of_the_next_group),
    Mutation("another group's row", "rl_groups_by_domain", "rewards", other_origin("prompts")),
    Mutation("no question", "arithmetic_prompts", "gold_answers", on_row("arithmetic_prompts", 0, prompt="How many?")),
    Mutation("prompt in both files", "preferences", "pair_sanity", prompt_in_both),
    *(
        Mutation(name, asset, "merged", spoil)
        for asset, file, held_out in (
            ("preferences", "preferences", "preferences_test"),
            ("rl_prompts", "rl_prompts_train", "rl_prompts_test"),
        )
        for name, spoil in (
            ("a prompt altered", on_row(file, 5, prompt="What is 1 + 1?")),
            ("a held-out prompt altered", on_row(held_out, 0, prompt="What is 1 + 1?")),
            ("lines exchanged", lambda p, file=file: corruption.lines(p, file, reversed_lines)),
            ("another row", other_origin(file)),
        )
    ),
    *(
        Mutation(f"{name} ({stream})", asset, "merged", on_tokens(stream, change))
        for asset, stream in (
            ("preference_tokens", "chosen"),
            ("preference_tokens", "rejected"),
            ("rl_tokens", "prompts"),
            ("rl_tokens", "arithmetic"),
            ("rl_groups", "responses"),
            ("rl_groups", "test/prompts"),
        )
        for name, change in (("tokens swapped", swapped_tokens), ("token replaced", put(1, 300)))
    ),
    Mutation("masks swapped", "preference_tokens", "merged", swap_masks("chosen")),
    Mutation("another line", "preference_tokens", "merged", other_origin("chosen")),
    Mutation("a line lost", "rl_tokens", "merged", lambda p: corruption.records(p, "prompts", lambda rows: rows[1:])),
    Mutation("a mask of zeros", "rl_groups", "merged", on_mask("responses", lambda _, mask: mask * 0)),
    *(Mutation(n, "rl_groups", "merged", on_rewards(c)) for n, c in REWARDS.items()),
    Mutation("id outside", "rl_groups", "row_integrity", on_tokens("responses", put(1, 1 << 20))),
    *(Mutation(name, asset, "accounting", spoil, partition) for asset, partition in WITH_BOOKS.items() for name, spoil in BOOKS.items()),
]


def spoiled(pristine: Workspace, folder: Path, mutation: Mutation) -> tuple[Workspace, Published]:
    """Stores in which one asset is a spoiled copy and the others are the clean ones."""
    for store in pristine.stores.iterdir():
        if store.name != mutation.asset:
            (folder / store.name).symlink_to(store)
    shutil.copytree(pristine.stores / mutation.asset, folder / mutation.asset, symlinks=True)
    workspace = Workspace(pristine.configs, folder)
    published = workspace.published(mutation.asset, mutation.partition)
    assert published is not None
    mutation.spoil(published)
    return workspace, resealed(Published(published.directory, Manifest.read(published.directory)))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.asset}-{m.check}-{m.name}".replace(" ", "_"))
def test_a_corruption_is_seen(pristine: Workspace, tmp_path: Path, mutation: Mutation) -> None:
    workspace, published = spoiled(pristine, tmp_path, mutation)
    found = {check.name: check for check in CHECKS[mutation.asset]}
    assert run_check(found["file_hashes"], workspace, published).passed, "hashes alone must not explain it"
    verdict = run_check(found[mutation.check], workspace, published)
    assert not verdict.passed
    assert verdict.summary and verdict.worst is not None and verdict.worst.note


def test_clean_stores_pass_and_say_how_much_they_looked_at(pristine: Workspace) -> None:
    for asset, partition in {(mutation.asset, mutation.partition) for mutation in MUTATIONS}:
        published = pristine.published(asset, partition)
        assert published is not None
        for name, verdict in verdicts(pristine, published).items():
            assert verdict.passed, (asset, name, verdict.summary)
            # no group here has sampled ids, which have tests of their own
            assert verdict.worst is None and (any(verdict.numbers.values()) or name == "sampled_ids")


def test_every_check_has_a_corruption() -> None:
    """`file_hashes`, which is made to hold here, `sampled_ids` and those of contrastive rows have tests of their own; `policy_supported` is about no
    payload."""
    elsewhere = {("sft_template", "policy_supported"), ("rl_groups_by_domain", "sampled_ids")}
    covered = {(mutation.asset, mutation.check) for mutation in MUTATIONS} | elsewhere
    assert covered == {
        (asset, check.name)
        for asset, checks in CHECKS.items()
        for check in checks
        if check.name != "file_hashes" and "contrastive" not in asset
    }


def test_a_template_without_a_stop_token_cannot_support_a_mask_that_trains_it(stores: Workspace) -> None:
    published = stores.published("sft_template")
    assert published is not None and verdicts(stores, published)["policy_supported"].passed
    path = stores.configs / "sft.yaml"
    (stores.configs / "endless.jinja").write_text("{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}")
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "template": "endless.jinja"}))
    assert not verdicts(Workspace(stores.configs, stores.stores), published)["policy_supported"].passed
