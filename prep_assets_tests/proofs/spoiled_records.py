"""Corruptions of masks, tokens, lines, groups, counts and verdicts, and the checks that must see them; first those of the package's own kit, on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from prep_assets.config.models import TRAINED
from prep_assets.extensions.leaks.search import PASSAGES, TEXTS
from prep_assets.extensions.lines.proofs import Line
from prep_assets.extensions.selftest import mutations as kit
from prep_assets.graph.graph import CHECKS, EVERY
from prep_assets.pipeline.asset import FromRows
from prep_assets.pipeline.verdicts import VERDICTS
from prep_assets.stores import table
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import TOKENIZER
from prep_assets_tests.proofs import corruption
from prep_assets_tests.proofs.corruption import Mutation, Ragged, Spoil, Stored
from prep_assets_tests.proofs.shipped import SHIPPED
from prep_assets_tests.proofs.words import record

EOS, PAD = 0, 3

# -- the package's own kit --------------------------------------------------------------------------------------------------------------


def by_kit(mutation: kit.Mutation, rows: Sequence[Any], *more: Any) -> list[Any]:
    """Rows as a mutation of the kit changes the first of them, from number 5 on, that suits it."""
    return next(found for at in range(5, len(rows)) if (found := mutation.change(rows, at, *more)) is not None)


def on_conversations(stream: str, mutation: kit.Mutation) -> Spoil:
    def change(stored: list[Stored]) -> list[Stored]:
        rows = by_kit(mutation, [record("", each.content["sequence"], each.content["loss_mask"]) for each in stored], SHIPPED)
        return [replace(old, content={"sequence": row.ids, "loss_mask": row.mask}) for old, row in zip(stored, rows, strict=True)]

    return lambda published: corruption.records(published, stream, change)


def on_ids(stream: str, mutation: kit.Mutation) -> Spoil:
    def change(stored: list[Stored]) -> list[Stored]:
        rows = by_kit(mutation, [each.content["sequence"] for each in stored], EOS, SHIPPED.size)
        return [replace(old, content={"sequence": ids}) for old, ids in zip(stored, rows, strict=True)]

    return lambda published: corruption.records(published, stream, change)


def on_lines(file: str, mutation: kit.Mutation) -> Spoil:
    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [dict(line.stored) for line in by_kit(mutation, [Line("", row, row) for row in rows])]

    return lambda published: corruption.lines(published, file, change)


def fitting(mutations: Sequence[kit.Mutation], *unfit: str) -> list[kit.Mutation]:
    """Those of the kit that suit the shipped samples: without those whose names hold one of these words."""
    return [each for each in mutations if not any(word in each.name for word in (*unfit, "an image", "invented"))]


LINES = {
    name: next(iter(asset.streams)) for name, asset in EVERY.items() if isinstance(asset.source, FromRows) and asset.holds(table.LINES)
}
"""Assets of lines that are made from rows → their first file."""


def of_lines_of(name: str) -> Sequence[kit.Mutation]:
    """What the selftest does to the lines of an asset."""
    return [mutation for each in EVERY[name].corruptions for mutation in each.mutations]


UNFIT = {"preferences_by_domain": ("label", "weights", "list"), "rl_prompts_by_domain": ("verifier", "digits")}
CONVERSATIONS = [("sft_tokens", stream) for stream in ("train", "dev")]
CONVERSATIONS += [("preference_tokens_by_domain", side) for side in ("chosen", "rejected")]
RESPONSES = fitting(kit.MUTATIONS, "header", "prompt", "user turn", "control token")
KIT = [
    *((each, asset, on_conversations(stream, each)) for asset, stream in CONVERSATIONS for each in fitting(kit.MUTATIONS)),
    *((each, "rl_groups_by_domain", on_conversations("responses", each)) for each in RESPONSES),
    *((each, "pretrain_tokens", on_ids("docs_train", each)) for each in kit.DOCUMENT_MUTATIONS),
    *((each, "rl_tokens_by_domain", on_ids("prompts", each)) for each in kit.PROMPT_TOKEN_MUTATIONS),
    *((each, "arithmetic_tokens", on_ids("arithmetic", each)) for each in kit.PROMPT_TOKEN_MUTATIONS),
    *((each, name, on_lines(file, each)) for name, file in LINES.items() for each in fitting(of_lines_of(name), *UNFIT.get(name, ()))),
    *(
        (each, "arithmetic_prompts", on_lines("arithmetic_prompts", each))
        for each in fitting(of_lines_of("arithmetic_prompts"), "verifier", "digits")
    ),
]

# -- masks and tokens -------------------------------------------------------------------------------------------------------------------


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


def with_hole(_: npt.NDArray[Any], mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    start, end = first_run(mask)
    mask[(start + end) // 2] = 0
    return mask


def with_break_after(_: npt.NDArray[Any], mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    mask[first_run(mask)[1]] = 1
    return mask


def on_tokens(stream: str, change: Any) -> Spoil:
    """Change the ids of record 5: `change(ids, mask) -> ids`."""

    def spoil(published: Published) -> None:
        ragged = Ragged(published, stream)
        here = ragged.span(5)
        mask = None if ragged.mask is None else np.array(ragged.mask[here])
        ragged.tokens[here] = change(np.array(ragged.tokens[here]), mask)
        ragged.tokens.flush()

    return spoil


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


# -- lines ------------------------------------------------------------------------------------------------------------------------------


def on_row(name: str, number: int, **changes: Any) -> Spoil:
    """Set fields of one line; a function is given the old row."""

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[number] |= {key: value(rows[number]) if callable(value) else value for key, value in changes.items()}
        return rows

    return lambda published: corruption.lines(published, name, change)


def prompt_in_both(published: Published) -> None:
    first = json.loads((published.directory / "preferences.jsonl").open().readline())
    on_row("preferences_test", 0, prompt=first["prompt"])(published)


def sides_swapped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every worse answer is called the better one."""
    return [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]


def one_swapped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*rows[:4], *sides_swapped(rows[4:5]), *rows[5:]]


def next_lines(field: str) -> Any:
    """Every line has the field of the next one."""
    return lambda rows: [{**row, field: following[field]} for row, following in zip(rows, [*rows[1:], rows[0]], strict=True)]


def reversed_lines(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows[::-1]


# -- groups and books -------------------------------------------------------------------------------------------------------------------

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


def one_more(key: str) -> Spoil:
    return lambda published: corruption.counts(published, **{key: lambda value: value + 1})


def invented_refusal(published: Published) -> None:
    corruption.counts(published, read=lambda read: read + 1, refused=lambda refused: {**refused, "schema/invented": 1})


def invented(kind: str, **numbers: float) -> Spoil:
    """The manifest has a count or a metric that no build writes, or another number."""

    def spoil(published: Published) -> None:
        manifest = published.manifest
        replace(manifest, **{kind: {**getattr(manifest, kind), **numbers}}).write(published.directory)

    return spoil


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
    "kept count wrong": one_more("kept"),
    "read count wrong": one_more("read"),
    "a refusal invented down": invented_refusal,
    "a refusal that nobody counted": invented_quarantine_line,
}
WITH_BOOKS = [name for name, checks in CHECKS.items() if name != "sft_packed" and any(check.name == "accounting" for check in checks)]


# -- verdicts ---------------------------------------------------------------------------------------------------------------------------


def changed(change: Callable[[Any], Any], file: str = VERDICTS) -> Spoil:
    """Write the table again as `change` makes it."""

    def spoil(published: Published) -> None:
        path = published.directory / file
        pq.write_table(change(pq.read_table(path)), path)

    return spoil


def a_row_dropped(table: Any) -> Any:
    """Says of the first row that a step drops it."""
    return table.set_column(2, "dropped", pa.array(["near_duplicate", *table["dropped"].to_pylist()[1:]], pa.string()))


def a_leak_made_up(table: Any) -> Any:
    """Says that the first row holds a text that is held out nowhere."""
    made_up = {"file": 0, "row": 0, "detail": "shares 9 of 9 words", "rule": "gpt3", "family": "eval", "domain": "none", "record": "x:0"}
    return pa.concat_tables([table, pa.Table.from_pylist([{**made_up, "shared": 9, "units": 9, "texts": 1}], schema=table.schema)])


def first_lost(published: Published, stream: str) -> None:
    corruption.records(published, stream, lambda rows: rows[1:])


def of_lines(file: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Spoil:
    return lambda published: corruption.lines(published, file, change)


PAIR, PAIR_TOKENS, PROMPT, SUMS, GROUPS = (
    *("preferences_by_domain", "preference_tokens_by_domain", "rl_prompts_by_domain", "arithmetic_prompts", "rl_groups_by_domain"),
)
MASK, IDENTITY, ROWS, MATCH, SELECTION, SANITY, GOLD = (
    kit.MASK,
    kit.IDENTITY,
    kit.ROWS,
    kit.MATCH,
    kit.SELECTION,
    "pair_sanity",
    "gold_answers",
)
TEXTS_OF_ROWS = "source_texts"
OTHER_PROMPT: dict[str, Any] = {"prompt": "What is 1 + 1?"}
SPOILED = [
    *(Mutation(each.name, asset, each.caught_by, spoil) for each, asset, spoil in KIT),
    *(
        Mutation(*each)
        for each in (
            ("hole in the middle", "sft_tokens", MASK, on_mask("train", with_hole)),
            ("line break after the stop included", "sft_tokens", MASK, on_mask("dev", with_break_after)),
            ("another row", "sft_tokens", MASK, other_origin("train")),
            ("a start that is not trained", "pretrain_tokens", MASK, masked_document),
            ("another document's row", "pretrain_tokens", IDENTITY, other_origin("docs_train")),
            ("same text in other tokens", "pretrain_tokens", IDENTITY, spelled_otherwise("docs_train")),
            ("same text in other tokens", "sft_tokens", IDENTITY, spelled_otherwise("train")),
            ("same text in other tokens", PAIR_TOKENS, IDENTITY, spelled_otherwise("chosen")),
            ("another prompt's row", "rl_tokens_by_domain", IDENTITY, other_origin("prompts")),
            ("a duplicate that is none, in the books alone", "sft_tokens", SELECTION, duplicate_in_the_books),
            ("a field that no row has", "sft_tokens", SELECTION, field_in_the_books),
            ("empty answer in the test file", PAIR, SANITY, on_row("preferences_test", -1, chosen="")),
            ("prompt in both files", PAIR, SANITY, prompt_in_both),
            ("prompt in both files", "preferences", SANITY, prompt_in_both),
            ("a field too many", PAIR, SANITY, on_row("preferences", 2, score=1)),
            ("strings and messages", PAIR, SANITY, on_row("preferences", 2, chosen=[{"role": "assistant", "content": "x"}])),
            ("held-out pairs swapped", PAIR, MATCH, of_lines("preferences_test", sides_swapped)),
            ("a foreign prompt", PAIR, MATCH, on_row("preferences", 7, prompt="What is the capital of Peru?")),
            ("a space more", PAIR, MATCH, on_row("preferences", 3, rejected=lambda row: row["rejected"] + " ")),
            (
                "a prompt with two golds",
                PROMPT,
                "prompt_sanity",
                of_lines("rl_prompts_train", lambda lines: [{**lines[1], "gold": 0.125}, *lines[1:]]),
            ),
            ("a held-out prompt altered", PROMPT, MATCH, on_row("rl_prompts_test", 0, **OTHER_PROMPT)),
            ("gold as text", PROMPT, MATCH, on_row("rl_prompts_train", 9, gold=lambda row: str(row["gold"]))),
            ("gold in the test file", PROMPT, GOLD, on_row("rl_prompts_test", 0, gold=lambda row: row["gold"] + 1)),
            ("question changed", SUMS, GOLD, on_row(SUMS, 0, prompt="What is 1 + 1000?")),
            ("no question", SUMS, GOLD, on_row(SUMS, 0, prompt="How many?")),
            ("another right question", SUMS, MATCH, on_row(SUMS, 3, **OTHER_PROMPT, gold=2.0)),
            ("answer token replaced", GROUPS, MASK, on_tokens("test/responses", put(0, 300))),
            ("token of the prompt replaced", GROUPS, IDENTITY, on_tokens("prompts", put(4, 300))),
            ("tokens of the prompt swapped", GROUPS, IDENTITY, on_tokens("test/prompts", swapped_tokens)),
            ("break after a response replaced", GROUPS, IDENTITY, on_tokens("responses", put(-1, 300))),
            ("border of prompt and response moved", GROUPS, IDENTITY, moved_into_the_response),
            ("a response of another group", GROUPS, "rewards", response_of_the_next_group),
            ("another group's row", GROUPS, "rewards", other_origin("prompts")),
            ("another row", "preference_tokens", "merged", other_origin("chosen")),
            ("a mask of zeros", "preference_tokens", "merged", on_mask("chosen", lambda _, mask: mask * 0)),
            ("a mask of zeros", "rl_groups", "merged", on_mask("responses", lambda _, mask: mask * 0)),
            ("a record lost", "rl_tokens", "merged", partial(first_lost, stream="prompts")),
            ("a record lost", PAIR_TOKENS, SELECTION, partial(first_lost, stream="chosen")),
            ("a record lost", "rl_tokens_by_domain", SELECTION, partial(first_lost, stream="prompts")),
            ("a record lost", "arithmetic_tokens", SELECTION, partial(first_lost, stream="arithmetic")),
            ("a row that is not there", "pretrain_tokens", SELECTION, foreign_row("docs_train")),
            ("a row that is not there", "sft_tokens", SELECTION, foreign_row("train")),
            ("a row that is not there", GROUPS, SELECTION, foreign_row("prompts")),
            ("answers untrained", "sft_tokens", TEXTS_OF_ROWS, on_mask("train", lambda _, mask: mask * 0)),
            ("words of a chat swapped", "sft_tokens", TEXTS_OF_ROWS, on_tokens("dev", lambda ids, _: ids[::-1])),
            ("another document's row", "pretrain_tokens", TEXTS_OF_ROWS, other_origin("docs_train")),
            ("held-out pairs swapped", PAIR, TEXTS_OF_ROWS, of_lines("preferences_test", sides_swapped)),
            ("one pair swapped", PAIR, TEXTS_OF_ROWS, of_lines("preferences", one_swapped)),
            ("prompts of the next pairs", PAIR, TEXTS_OF_ROWS, of_lines("preferences", next_lines("prompt"))),
            ("another pair's line", PAIR_TOKENS, TEXTS_OF_ROWS, other_origin("chosen")),
            ("a rejected answer untrained", PAIR_TOKENS, TEXTS_OF_ROWS, on_mask("rejected", lambda _, mask: mask * 0)),
            ("a held-out prompt altered", PROMPT, TEXTS_OF_ROWS, on_row("rl_prompts_test", 0, **OTHER_PROMPT)),
            ("gold of another", PROMPT, TEXTS_OF_ROWS, on_row("rl_prompts_train", 9, gold=lambda row: row["gold"] + 1)),
            ("another prompt's line", "rl_tokens_by_domain", TEXTS_OF_ROWS, other_origin("prompts")),
            ("another question's line", "arithmetic_tokens", TEXTS_OF_ROWS, other_origin("arithmetic")),
            ("a response of another group", GROUPS, TEXTS_OF_ROWS, response_of_the_next_group),
            ("answer token replaced", GROUPS, TEXTS_OF_ROWS, on_tokens("test/responses", put(0, 300))),
            ("queries of the next lines", "contrastive", TEXTS_OF_ROWS, of_lines("contrastive", next_lines("query"))),
            ("a leak left out", "sft_leaks", "leaks_again", changed(lambda table: table.slice(1)), "gsm8k"),
            *(("a leak made up", f"{family}_leaks", "leaks_again", changed(a_leak_made_up)) for family in TRAINED),
            ("a text left out", "eval_passages", "passages_again", changed(lambda table: table.slice(1), TEXTS)),
            ("a passage left out", "eval_passages", "passages_again", changed(lambda table: table.slice(1), PASSAGES.format("gpt3"))),
        )
    ),
    *(
        Mutation(f"id {value} in {stream}", asset, ROWS, on_tokens(stream, put(1, value)))
        for asset, stream in (
            ("sft_tokens", "dev"),
            (PAIR_TOKENS, "chosen"),
            ("preference_tokens", "chosen"),
            ("rl_tokens", "arithmetic"),
            ("rl_groups", "responses"),
            *((GROUPS, stream) for stream in ("prompts", "responses", "test/prompts")),
        )
        for value in (-1, 1 << 20)
    ),
    *(
        Mutation(f"{name} ({stream})", asset, "merged", on_tokens(stream, change))
        for asset, *streams in (
            ("preference_tokens", "chosen", "rejected"),
            ("rl_tokens", "prompts", "arithmetic"),
            ("rl_groups", "responses", "test/prompts"),
        )
        for stream in streams
        for name, change in (("tokens swapped", swapped_tokens), ("token replaced", put(1, 300)))
    ),
    *(
        Mutation(name, asset, "merged", spoil)
        for asset, file, held_out in (
            ("preferences", "preferences", "preferences_test"),
            ("rl_prompts", "rl_prompts_train", "rl_prompts_test"),
        )
        for name, spoil in (
            ("a prompt altered", on_row(file, 5, **OTHER_PROMPT)),
            ("a held-out prompt altered", on_row(held_out, 0, **OTHER_PROMPT)),
            ("lines exchanged", of_lines(file, reversed_lines)),
            ("another row", other_origin(file)),
        )
    ),
    *(
        Mutation(name, asset, check, spoil)
        for asset, file in LINES.items()
        for name, check, spoil in (
            ("lines exchanged", MATCH, of_lines(file, reversed_lines)),
            ("another row", MATCH, other_origin(file)),
            ("a line lost", SELECTION, partial(first_lost, stream=file)),
            ("a row that is not there", SELECTION, foreign_row(file)),
        )
    ),
    *(Mutation(name, *where, on_rewards(c)) for where in ((GROUPS, "rewards"), ("rl_groups", "merged")) for name, c in REWARDS.items()),
    *(
        Mutation(name, f"{family}_quality", "verdicts_again", changed(change))
        for family in TRAINED
        for name, change in (("a row dropped", a_row_dropped), ("a row left out", lambda table: table.slice(1)))
    ),
    *(
        Mutation(f"{key} wrong", asset, "accounting", one_more(key))
        for asset, *keys in (
            ("sft_tokens", "tokens", "trained_tokens", "kept_dev"),
            ("pretrain_tokens", "tokens"),
            (PAIR_TOKENS, "tokens", "trained_tokens"),
            ("rl_tokens_by_domain", "tokens"),
        )
        for key in keys
    ),
    *(Mutation(name, asset, "accounting", spoil) for asset in WITH_BOOKS for name, spoil in BOOKS.items()),
]
