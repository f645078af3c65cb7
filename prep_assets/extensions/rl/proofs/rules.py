"""Rules about rows that JSON Schema cannot say, and about columns, by the names that definitions in `formats` give them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from prep_assets.proofs.formats import Format
from prep_assets.proofs.row_rules import letters, number, under, uneven
from prep_assets.proofs.source_fields import json_leaves
from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_rules import text
from prep_assets.proofs.source_texts import CALL, Said
from prep_assets.samples import Row

# Rows that must be rejected.


def no_gold(row: Row, format: Format) -> bool:
    """A gold that must be a number is none."""
    gold, verifier = under(row, format, "gold_key"), under(row, format, "verifier_key") or format.options.get("verifier", "number")
    return isinstance(gold, str) and verifier == "number" and number(gold.strip()) is None


_SUM = re.compile("What is (?:\\(([0-9]{1,18}) ([+*-]) ([0-9]{1,18})\\)|([0-9]{1,18})) ([+*-]) ([0-9]{1,18})\\?")


_DOES: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {"+": Fraction.__add__, "-": Fraction.__sub__, "*": Fraction.__mul__}


def no_sum(row: Row, format: Format) -> bool:
    """The question is no sum."""
    return not _SUM.fullmatch(under(row, format, "prompt_key").strip())


def wrong_sum(row: Row, format: Format) -> bool:
    """The gold is not what the question comes to."""
    asked, gold = _SUM.fullmatch(under(row, format, "prompt_key").strip()), under(row, format, "gold_key")
    if asked is None:
        return False
    first = Fraction(asked[4]) if asked[4] else _DOES[asked[2]](Fraction(asked[1]), Fraction(asked[3]))
    said = number(gold.strip()) if isinstance(gold, str) else Fraction(gold)
    return said is not None and said != _DOES[asked[5]](first, Fraction(asked[6]))


def group_lengths(row: Row, format: Format) -> bool:
    """A response has no reward, or a reward no response; what is said of each token is said of more or fewer tokens than there are."""
    if uneven("responses_key", "rewards_key", "ranks_key", "token_ids_key")(row, format):
        return True
    ids = [*map(len, under(row, format, "token_ids_key") or ())]
    if any(
        (values := under(row, format, option)) is not None and [*map(len, values)] != ids for option in ("logprobs_key", "sampled_mask_key")
    ):
        return True
    answers = [1 if isinstance(each, str) else letters(each, format).count("a") for each in under(row, format, "responses_key")]
    turns = under(row, format, "turn_rewards_key")
    return turns is not None and [*map(len, turns)] != answers


def no_chance(row: Row, format: Format) -> bool:
    """All log-probabilities of a response of eight tokens or more are 0."""
    return any(len(values) > 7 and not any(values) for values in under(row, format, "logprobs_key") or ())


def above_one(row: Row, format: Format) -> bool:
    """A log-probability is of more than one."""
    return any(value > 0 for values in under(row, format, "logprobs_key") or () for value in values)


# What becomes of a column.


def unless_sampled(walk: Walk, value: Any, role: str, path: str) -> None:
    """Texts, unless the row has the ids that a model was given or wrote, which `sampled_ids` compares."""
    if walk.options.get("token_ids_key" if role == "responses" else "prompt_ids_key") is None:
        text(walk, value, role, path)


def told(walk: Walk, value: Any, role: str, path: str) -> None:
    """What a verifier is told: all strings and numbers stand in its arguments."""
    for leaf in json_leaves(json.loads(value) if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"') else value):
        walk.said.append(Said(path, role, walk.turn, CALL, leaf))
