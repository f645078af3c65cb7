"""Corruptions of masks and tokens, and the checks that must see them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import TOKENIZER
from prep_assets_tests.proofs import corruption
from prep_assets_tests.proofs.corruption import Mutation, Ragged, Spoil

EOS, START, END, PAD = 0, 1, 2, 3


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


SPOILED = [
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
    Mutation("pairs of another row", "preferences_by_domain", "source_match", other_origin("preferences")),
    Mutation("another prompt's row", "rl_tokens_by_domain", "tokenization_identity", other_origin("prompts")),
    *(
        Mutation("a line lost", asset, "selection", lambda p, stream=stream: corruption.records(p, stream, lambda rows: rows[1:]))
        for asset, stream in (
            ("preference_tokens_by_domain", "chosen"),
            ("rl_tokens_by_domain", "prompts"),
            ("arithmetic_tokens", "arithmetic"),
        )
    ),
    Mutation("masks swapped", "preference_tokens", "merged", swap_masks("chosen")),
    Mutation("another line", "preference_tokens", "merged", other_origin("chosen")),
    Mutation("a line lost", "rl_tokens", "merged", lambda p: corruption.records(p, "prompts", lambda rows: rows[1:])),
]
