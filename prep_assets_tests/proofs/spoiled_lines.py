"""Corruptions of lines, and the checks that must see them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.stores.version_folders import Published
from prep_assets_tests.proofs import corruption
from prep_assets_tests.proofs.corruption import Mutation, Spoil
from prep_assets_tests.proofs.spoiled_tokens import on_tokens, other_origin, put, swapped_tokens


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


NEGATED: dict[str, Any] = {"gold": lambda row: -row["gold"] if row["gold"] else 1}
OFF_BY_ONE: dict[str, Any] = {"gold": lambda row: row["gold"] + 1}
DECIMAL: dict[str, Any] = {"gold": lambda row: row["gold"] + 0.1}
TENFOLD: dict[str, Any] = {"gold": lambda row: row["gold"] * 10 if row["gold"] else 10}
NO_NUMBER: dict[str, Any] = {"gold": "many"}
GOLDS = {"sign": NEGATED, "digit": OFF_BY_ONE, "decimal": DECIMAL, "magnitude": TENFOLD, "no number": NO_NUMBER}


SPOILED = [
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
]
