"""Corruptions of scored groups and of the counts of any store, and the checks that must see them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from prep_assets.stores.version_folders import Published
from prep_assets_tests.proofs import corruption
from prep_assets_tests.proofs.corruption import DOMAINS, Mutation, Spoil
from prep_assets_tests.proofs.spoiled_tokens import (
    foreign_row,
    on_mask,
    on_tokens,
    other_origin,
    put,
    swapped_tokens,
    with_break_after,
    with_hole,
    without_first_token,
    without_stop,
)

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


SPOILED = [
    Mutation("a duplicate that is none, in the books alone", "sft_tokens", "selection", duplicate_in_the_books, "chats"),
    Mutation("a field that no row has", "sft_tokens", "selection", field_in_the_books, "chats"),
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
    Mutation("a mask of zeros", "rl_groups", "merged", on_mask("responses", lambda _, mask: mask * 0)),
    *(Mutation(n, "rl_groups", "merged", on_rewards(c)) for n, c in REWARDS.items()),
    Mutation("id outside", "rl_groups", "row_integrity", on_tokens("responses", put(1, 1 << 20))),
    *(Mutation(name, asset, "accounting", spoil, partition) for asset, partition in WITH_BOOKS.items() for name, spoil in BOOKS.items()),
]
