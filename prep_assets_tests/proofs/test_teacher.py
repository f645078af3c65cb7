"""What a teacher says of tokens: the second reading of each form, and each way in which what is stored is not what the rows say."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs.teachers import Taught, check_teacher, entries_again, entries_of_tokens
from prep_assets.proofs.verdict import Verdict, Worst

SAID = ((), ((5, -0.5), (6, -1.5)), ((9, -0.25), (7, -2.0), (6, -3.0)), ((8, -0.125),))
RIGHT = Taught(
    "a",
    np.array([4, 5, 7, 8]),
    np.array([0, 2, 3, 1]),
    np.array([5, 6, 9, 7, 6, 8]),
    np.array([-0.5, -1.5, -0.25, -2.0, -3.0, -0.125], np.float16),
    SAID,
)
COUNTED = {"records_checked": 1, "tokens_with_entries": 3, "entries_checked": 6, "own": 3, "before": 0, "behind": 0}
NONE = dict.fromkeys(COUNTED, 0)


def test_what_the_rows_say() -> None:
    doubled = {key: 2 * number for key, number in COUNTED.items()}
    says = "12 entries of 6 tokens are those of their rows, as float16; 6 tokens are among their own"
    assert check_teacher([RIGHT, RIGHT]) == Verdict(True, says, doubled)
    assert check_teacher([]) == Verdict(True, "no token has entries of a teacher", NONE)
    say = check_teacher([RIGHT]).say
    assert say is not None and say(doubled) == says


def wrong(**changes: Any) -> Taught:
    return replace(RIGHT, id="b", **changes)


def valued(at: int, value: float) -> Any:
    values = RIGHT.logprobs.copy()
    values[at] = value
    return values


def said(at: int, *entries: tuple[int, float]) -> dict[str, Any]:
    """Other entries of a token, stored as they are said."""
    source = [*SAID[:at], entries, *SAID[at + 1 :]]
    flat = [entry for place in source for entry in place]
    return {
        "source": source,
        "counts": np.array(list(map(len, source))),
        "ids": np.array([token for token, _ in flat]),
        "logprobs": np.array([value for _, value in flat], np.float32),
    }


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"counts": np.array([0, 3, 2, 1])}, "token 1 has another number of entries than in the row"),
        ({"counts": np.array([0, 2, 3])}, "token 3 has another number of entries than in the row"),
        ({"ids": RIGHT.ids[:5]}, "5 entries, the row has 6"),
        ({"ids": np.array([5, 6, 9, 6, 7, 8])}, "an entry of token 2 is id 6, the row has 7"),
        ({"logprobs": valued(4, -3.002)}, "a log-probability of token 2 is -3.00195, the row has -3"),
        ({"logprobs": valued(0, np.nan)}, "a log-probability of token 1 is nan, the row has -0.5"),
        (said(3, (8, 0.005)), "the entries of token 3 are no probabilities"),
        (said(3, (8, -1.0), (8, -2.0)), "token 3 has two entries of one id"),
    ],
)
def test_what_is_stored_is_not_what_the_row_says(changes: dict[str, Any], says: str) -> None:
    verdict = check_teacher([RIGHT, wrong(**changes), RIGHT])
    assert (verdict.passed, verdict.summary, verdict.worst) == (False, f"b: {says}", Worst("b", says))
    assert verdict.numbers == COUNTED


@pytest.mark.parametrize(
    ("entries", "holds"),
    [(((8, 0.0),), True), (((8, 0.0), (9, log(0.01))), True), (((8, -0.685), (9, -0.685)), True), (((8, -0.68), (9, -0.68)), False)],
)
def test_probabilities_add_up_to_one_or_little_more(entries: Sequence[tuple[int, float]], holds: bool) -> None:
    assert check_teacher([wrong(**said(3, *entries))]).passed is holds


@pytest.mark.parametrize(
    ("value", "stored", "holds"),
    [(-1.0, -1.0 + 2**-11 + 2**-25, True), (-3.0, -3.0 + 3 * 2**-10.9, False), (-(2**-30), 0.0, True), (-(2**-24.5), 0.0, False)],
)
def test_a_log_probability_is_off_by_half_of_its_last_bit_at_most(value: float, stored: float, holds: bool) -> None:
    changes = said(3, (8, value))
    values = changes["logprobs"].astype(np.float64)
    values[-1] = stored
    assert check_teacher([wrong(**{**changes, "logprobs": values})]).passed is holds


@pytest.mark.parametrize(("by", "side"), [(-1, "0 of 2 tokens are among their own entries, 3 among those before them, 0"), (1, "0 of 2")])
def test_more_tokens_among_the_entries_of_a_neighbour(by: int, side: str) -> None:
    source = [*SAID[1:], ()] if by == -1 else [(), (), *SAID[1:3]]
    entries = [entry for place in source for entry in place]
    moved = replace(
        RIGHT,
        counts=np.array(list(map(len, source))),
        ids=np.array([token for token, _ in entries]),
        logprobs=np.array([value for _, value in entries], np.float16),
        source=source,
    )
    named = [3, 2][by == 1]
    counts = {"before": 3, "behind": 0} if by == -1 else {"before": 0, "behind": 2}
    verdict = check_teacher([moved])
    says = "0 of {} tokens are among their own entries, {before} among those before them, {behind} among those behind".format(
        named, **counts
    )
    assert (verdict.passed, verdict.summary, verdict.worst) == (False, f"all records: {says}", Worst("all records", says))
    assert verdict.numbers == {"records_checked": 1, "tokens_with_entries": named, "entries_checked": len(entries), "own": 0, **counts}
    assert check_teacher([moved, RIGHT]).passed, "as many as their own"


ROW: dict[str, Any] = {
    "input_ids": [4, 5, 7],
    "target_token_ids": [None, [6, 5], [7, 9]],
    "target_logprobs": [None, [-1.5, -0.5], [-2.0, -0.25]],
}
READ: list[Any] = [[], [(5, -0.5), (6, -1.5)], [(9, -0.25), (7, -2.0)]]
ONES = [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("row", "options", "read"),
    [
        (ROW, {}, READ),
        ({**ROW, "target_mask": [[], [1, 0], [0, 1]]}, {}, [[], [(6, -1.5)], [(9, -0.25)]]),
        ({**ROW, "target_logprobs": [None, [-1e4, -0.5], [-9_999.0, -np.inf]]}, {}, [[], [(5, -0.5)], [(7, -9_999.0)]]),
        ({**ROW, "s": [9, 1, 0]}, {"log_sum_key": "s"}, [[], [(5, -1.5), (6, -2.5)], [(9, -0.25), (7, -2.0)]]),
        ({"p": [None, {"6": {"logprob": -1.5}, "5": {"logprob": -0.5}}, {"9": {"logprob": -0.25}, "7": {"logprob": -2.0}}]}, {}, READ),
        ({"p": [None, [[-1.5, 6, "b"], [-0.5, 5, "a"]], [[-0.25, 9, "c"], [-2.0, 7, None]]]}, {}, READ),
        (
            {
                "p": [
                    [],
                    [{"token": "token_id:6", "logprob": -1.5}, {"token": "5", "logprob": -0.5}],
                    [{"token": "token_id:9", "logprob": -0.25}],
                ]
            },
            {},
            [*READ[:2], READ[2][:1]],
        ),
        ({"t": [[6, 5]], "l": [[-0.5, -0.5]]}, {"teacher_ids_key": "t", "logprobs_key": "l"}, [[(6, -0.5), (5, -0.5)]]),
    ],
)
def test_each_form_read_again(row: dict[str, Any], options: dict[str, Any], read: Any) -> None:
    named = {"teacher_ids_key": None, "logprobs_key": "p"} if "p" in row else {}
    assert entries_again(row, {**named, **options}) == read


MINUS_HALF, MINUS_ONE = [0, 0, 0, 191], [0, 0, 128, 191]
"""Of float32."""
STEPS = {"scale_dtype": "float16", "element_bits": 3, "num_elements": 2}
SIGN = {"scale_dtype": "bfloat16", "element_bits": 1, "num_elements": 1}


@pytest.mark.parametrize(
    ("compression", "numbers", "values"),
    [
        ({"exact_k": 3, "exact_dtype": "bfloat16", "delta_encoding": False}, [0, 191, 0, 192, 128, 192], [-0.5, -2.0, -4.0]),
        ({"exact_k": 1, "exact_dtype": "float16", "polynomial_terms": [0, 1]}, [0, 184, *MINUS_ONE, *MINUS_HALF], [-0.5, -1.5, -3.0]),
        (
            {"k": 4, "exact_k": 1, "polynomial_terms": [0, 1], "delta_encoding": False, "normalize_t": True},
            [*MINUS_HALF, *MINUS_ONE, *MINUS_HALF],
            [-0.5, -1.0, -1.25, -1.5],
        ),
        (
            {"exact_k": 1, "polynomial_terms": ["sqrt", "exp"], "term_dtype": "float64", "delta_encoding": False},
            [*MINUS_HALF, *[0, 0, 0, 0, 0, 0, 240, 191] * 2],
            [-0.5, -1.0, -1.0 - math.e],
        ),
        # 3 and 1 less 4, in halves; then a bit that says less: together they are more than 1, and divided by their sum
        (
            {"exact_k": 0, "residual_bins": [STEPS, SIGN], "delta_encoding": False},
            [0, 56, 0b01100100, 128, 63, 0],
            [value - math.log(math.exp(-0.5) + math.exp(-1.5) + math.exp(-1.0)) for value in (-0.5, -1.5, -1.0)],
        ),
        # 7 and 5 less 8, which fill a byte; then a bit that says more
        ({"exact_k": 0, "residual_bins": [{**STEPS, "element_bits": 4}, SIGN]}, [0, 60, 0b01110101, 128, 191, 128], [-1.0, -4.0, -5.0]),
        ({"exact_k": 1, "polynomial_terms": [1], "normalize_t": True}, [*MINUS_HALF, *MINUS_HALF], [-0.5, -0.5, -1.0]),
        ({"exact_k": 0, "polynomial_terms": [0, 1], "delta_encoding": False}, [*MINUS_ONE, *MINUS_ONE], [-1.0, -2.0, -3.0]),
        ({"d": 17, "k": 2, "exact_k": 2}, [*MINUS_HALF, *MINUS_ONE], [-0.5, -1.5]),
        (
            {"k": 2, "exact_k": 2, "exact_dtype": "float64", "delta_encoding": False},
            [*struct.pack("<2d", 0.0, math.log(0.25))],
            [-math.log(1.25), math.log(0.2)],
        ),
    ],
)
def test_compressed_numbers_read_again(compression: dict[str, Any], numbers: list[int], values: list[float]) -> None:
    """By hand. Ids are 5, 6, 7 and 8, of 4 or 5 bits."""
    said = {"d": 16, "k": 3, **compression}
    ids = {(2, 16): [0x56], (3, 16): [0x56, 0x70], (4, 16): [0x56, 0x78], (2, 17): [0b00101001, 0b10000000]}[said["k"], said["d"]]
    row = {"target_token_ids": [ids], "target_logprobs": [numbers]}
    [found] = entries_again(row, {"compression": said})
    wanted = sorted(zip((5, 6, 7, 8), values, strict=False), key=lambda pair: -pair[1])
    assert [token for token, _ in found] == [token for token, _ in wanted]
    assert [value for _, value in found] == pytest.approx([value for _, value in wanted], abs=1e-12)


@pytest.mark.parametrize(
    ("said", "words", "factors", "fitted"),
    [
        ({"vocab_size": 17, "k": 3, "exact_k": 1, "polynomial_degree": 2}, [5 + (6 << 5) + (7 << 10)], [-1.0, -2.0, -4.0], [-7.0, -3.0]),
        ({"vocab_size": 16, "k": 2, "exact_k": 1, "polynomial_degree": 0, "with_sqrt_term": True}, [0x65], [-1.0, -2.0], [-3.0]),
        (
            {"vocab_size": 1 << 31, "k": 3, "exact_k": 1, "polynomial_degree": 1, "invert_polynomial": False},
            [5 + (6 << 31), 7],
            [-1.0, -2.0],
            [-3.0, -5.0],
        ),
        ({"vocab_size": 16, "k": 1, "exact_k": 1, "polynomial_degree": 8}, [5], [], []),
    ],
)
def test_older_numbers_read_again(said: dict[str, Any], words: list[int], factors: list[float], fitted: list[float]) -> None:
    """By hand: of 5 bits, twelve ids are in a word, of 31 bits two."""
    row = {"target_token_ids": [words], "target_logprobs": [[-0.25]], "coeffs": [factors]}
    [found] = entries_again(row, {"compression": said})
    assert found == sorted(zip((5, 6, 7), [-0.25, *fitted], strict=False), key=lambda pair: -pair[1])


@pytest.mark.parametrize(
    ("row", "options", "weights", "places"),
    [
        (ROW, {}, ONES, [0, 1, 2]),
        (ROW, {"teacher_shifted": True}, ONES, [None, 0, 1]),
        ({**ROW, "input_ids": [4, 5, 7, 8]}, {}, [*ONES, 1.0], [None, 0, 1, 2]),
        ({**ROW, "attention_mask": [0, 1, 1]}, {}, ONES[1:], [1, 2]),
        ({**ROW, "attention_mask": [0, 1, 1]}, {"mask_keys": ["attention_mask"]}, ONES, [0, 1, 2]),
        (ROW, {}, [*ONES, 1.0], [0, 1, 2, None]),
        ({key: values[1:] for key, values in ROW.items()}, {}, ONES[1:], [1, 2]),
        ({**ROW, "ids": [4]}, {"ids_key": "other"}, [0.0, 1.0, 0.5, 0.0, 1.0], [None, 0, 1, None, 2]),
        ({**ROW, "input_ids": None}, {}, [1.0, 0.0, 1.0, 1.0, 1.0], [0, None, 1, 2, None]),
    ],
)
def test_the_token_that_a_list_is_about(
    row: dict[str, Any], options: dict[str, Any], weights: list[float], places: list[int | None]
) -> None:
    wanted = [() if place is None else tuple(READ[place]) for place in places]
    assert [tuple(entries) for entries in entries_of_tokens(row, options, weights)] == wanted
