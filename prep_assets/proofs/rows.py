"""Proofs of rows: integrity of token rows, and of lines with prompts, golds and pairs."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.plain_reading import as_text
from prep_assets.proofs.second_reading import fingerprint
from prep_assets.proofs.verdict import Numbers, Rule, Verdict, Worst, added, fails, holds, shown, some_fail
from prep_assets.samples import UNATTENDED
from prep_assets.stores.arrays import predecessors, sizes, stretches
from prep_assets.stores.files import Digests, dumps
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import ATTENTION, TokenStore

# Row integrity: shapes, dtypes, ids inside the vocabulary, something trained in every row, consistent document borders.

BLOCK = 1 << 20
NO_TYPES: Mapping[str, str] = {}
_before = partial(predecessors, first=-1)  # no row and no record has this number


def _wrong_type(arrays: Mapping[str, Any], types: Mapping[str, str]) -> str:
    """Return the first array of another type than the options ask for; ``""`` if none."""
    wrong = (f"{key} is {arrays[key].dtype}, and must be {asked}" for key, asked in types.items() if arrays[key].dtype != asked)
    return next(wrong, "")


def check_records(
    store: TokenStore,
    *,
    vocabulary_size: int,
    types: Mapping[str, str] = NO_TYPES,
    eos_id: int | None = None,
    bos_id: int | None = None,
    ended: bool = True,
    longest: int | None = None,
) -> Verdict:
    """Check a ragged token store: arrays of the `types` that are named, no empty record and none of more than `longest` tokens, ids inside the vocabulary,
    a mask (if any) of weights in [0, 1] with something trained in every record, an attention mask (where there is one) of 0 and 1 with nothing trained
    where it is 0; with `eos_id`, exactly one end-of-text token in each record, its last, or none where not `ended`; with `bos_id`, one begin-of-text token,
    its first."""
    lengths = sizes(store.ends)
    numbers = {"records": len(store), "tokens": store.tokens}
    if fault_of_type := _wrong_type(store.arrays, types):
        return fails("the store", fault_of_type, numbers)
    if len(lengths) and lengths.min() < 1:
        return fails(f"record {int(lengths.argmin()):,}", f"{int(lengths.min())} tokens", numbers)
    if longest is not None and len(lengths) and lengths.max() > longest:
        return fails(f"record {int(lengths.argmax()):,}", f"{int(lengths.max()):,} tokens, and the options allow {longest:,}", numbers)
    for records, tokens in store.blocks(BLOCK):
        fault = next(_record_faults(store, records, tokens, vocabulary_size, ((bos_id, True), (eos_id, ended))), None)
        if fault is not None:
            record = records.start + fault[0]
            weights = store.weights(record) if "loss_mask" in store.arrays else ()
            return fails(f"record {record:,}", fault[1], numbers, store.record(record, "tokens"), weights)
    return Verdict(True, f"{len(store):,} records, {store.tokens:,} tokens: lengths, ids and mask are sound", numbers)


def _record_faults(
    store: TokenStore, records: slice, tokens: slice, size: int, ends: Sequence[tuple[int | None, bool]]
) -> Iterator[tuple[int, str]]:
    """Yield the faults of the records of a block, each with its index in the block. Begin-of-text and end-of-text tokens, possibly the same token, occur
    once each, at the ends of a record.

    Args:
        ends: begin-of-text and end-of-text token, and whether each is required; `None` for a token that is not checked.
    """
    ids, starts = np.asarray(store.arrays["tokens"][tokens]), store.starts_of(records) - tokens.start

    def first(wrong: npt.NDArray[np.bool_]) -> tuple[int, int]:
        at = int(wrong.argmax())
        return at, int(np.searchsorted(starts, at, "right")) - 1

    outside = (ids < 0) | (ids >= size)
    if outside.any():
        at, record = first(outside)
        yield record, f"id {int(ids[at])} is outside the vocabulary of {size:,}"
    borders = np.append(starts, len(ids))
    for (token, needed), places, name, position in zip(ends, (starts, borders[1:] - 1), ("begin", "end"), ("first", "last"), strict=True):
        if token is None:
            continue
        in_place, count = ids[places] == token, np.diff(np.searchsorted(np.flatnonzero(ids == token), borders))
        wrong = (count != sum(end_token == token and is_needed for end_token, is_needed in ends)) | (needed & ~in_place)
        if wrong.any():
            record = int(wrong.argmax())
            yield record, f"{int(count[record])} {name}-of-text tokens, the {position} token is {'one' if in_place[record] else 'none'}"
    if "loss_mask" in store.arrays:
        mask = np.asarray(store.arrays["loss_mask"][tokens])
        wrong = ~((mask >= 0) & np.isfinite(mask))
        if wrong.any():
            at, record = first(wrong)
            yield record, f"loss weight {mask[at]} of a token"
        untrained = ~np.logical_or.reduceat(mask > 0, starts)
        if untrained.any():
            yield int(untrained.argmax()), "no token is trained"
    if ATTENTION in store.arrays:
        attention = np.asarray(store.arrays[ATTENTION][tokens])
        for wrong, what in ((attention > 1, "an attention of {}"), (store.weights(tokens) < UNATTENDED, "trained, and not attended")):
            if wrong.any():
                at, record = first(wrong)
                yield record, f"token {at - int(starts[record])}: {what.format(attention[at])}"


def check_packed(store: PackedStore, *, vocabulary_size: int, pad_id: int, types: Mapping[str, str] = NO_TYPES) -> Verdict:
    """Check a packed table: arrays of the `types` that are named; ids inside the vocabulary; pieces that fill each row from its start without gap or
    overlap; padding after them that
    is `pad_id`, untrained and unattended; something trained in every row, and nothing that is not attended."""
    documents = {field: np.asarray(values) for field, values in store.documents.items()}
    numbers = {"rows": len(store), "pieces": len(documents["row"])}
    if fault_of_type := _wrong_type({"tokens": store.tokens, "loss_mask": store.loss_mask}, types):
        return fails("the table", fault_of_type, numbers)
    borders = _border_fault(documents, len(store), store.row_len)
    if borders is not None:
        return Verdict(False, borders, numbers, Worst("documents", borders))
    for first, tokens, mask in store.blocks():
        low, high = np.searchsorted(documents["row"], [first, first + len(tokens)])
        used = np.bincount(documents["row"][low:high] - first, documents["length"][low:high])
        padding = np.arange(store.row_len)[None, :] >= used[:, None]
        faults = {
            "an id is outside the vocabulary": ((tokens < 0) | (tokens >= vocabulary_size)).any(axis=1),
            "no token is trained": ~(mask != 0).any(axis=1),
            "padding is trained": ((mask != 0) & padding).any(axis=1),
            f"padding is not token {pad_id}": ((tokens != pad_id) & padding).any(axis=1),
            "a loss weight is negative or no number": ~((mask >= 0) & np.isfinite(mask)).all(axis=1),
        }
        if store.attention_mask is not None:
            attention = np.asarray(store.attention_mask[first : first + len(tokens)])
            faults |= {
                "an attention is neither 0 nor 1": (attention > 1).any(axis=1),
                "a trained token is not attended": ((mask != 0) & (attention == 0)).any(axis=1),
                "padding is attended": ((attention != 0) & padding).any(axis=1),
            }
        for what, rows in faults.items():
            if rows.any():
                row = int(rows.argmax())
                worst = Worst(f"row {first + row:,}", what, tuple(tokens[row].tolist()), tuple(map(float, mask[row].tolist())))
                return Verdict(False, f"{what}: row {first + row:,} and {int(rows.sum()) - 1:,} more in its block", numbers, worst)
    return Verdict(
        True,
        f"{len(store):,} rows of {store.row_len:,}, {len(documents['row']):,} pieces: borders, padding, ids and mask are sound",
        numbers,
    )


def _border_fault(documents: dict[str, npt.NDArray[Any]], rows: int, row_len: int) -> str | None:
    row, offset, length = documents["row"], documents["row_offset"], documents["length"]
    source, record, start = documents["source"], documents["record"], documents["start"]
    rows_with_pieces = 0
    for part in stretches(len(row)):
        steps = row[part] - _before(row, part)
        if (steps < 0).any():
            return f"pieces are not in the order of their rows: one of row {int(row[part.start + (steps < 0).argmax() - 1]):,} stands before a lower row"
        rows_with_pieces += int(np.count_nonzero(steps))
    if rows_with_pieces != rows or (len(row) and (row[0] < 0 or row[-1] >= rows)):
        return f"pieces lie in {rows_with_pieces:,} rows, the table has {rows:,}"
    for part in stretches(len(row)):
        first, end = row[part] != _before(row, part), offset[part] + length[part]
        expected = np.where(first, 0, _before(offset, part) + _before(length, part))
        wrong = (offset[part] != expected) | (length[part] < 1) | (end > row_len)
        if wrong.any():
            at, place = part.start + int(wrong.argmax()), int(expected[wrong.argmax()])
            return f"row {int(row[at]):,}: a piece at {int(offset[at])} of {int(length[at])} tokens, where {place} was the next free place"
        follows = ~first & (source[part] == _before(source, part)) & (record[part] == _before(record, part))
        follows &= start[part] == _before(start, part) + _before(length, part)
        if follows.any():
            at = part.start + int(follows.argmax())
            return f"row {int(row[at]):,}: a border at place {int(offset[at])}, inside record {int(record[at]):,} of its domain"
    return None


# Position ids of a packed table: from 0 in each piece, 0 in the padding.


def check_positions(positions: Any, documents: Mapping[str, npt.NDArray[Any]], row_len: int) -> Verdict:
    """Check the position ids of every row.

    Args:
        positions: (N, row_len), read in slices.
        documents: fields of the pieces, ordered by row and place.
    """
    row, offset, length = (np.asarray(documents[field]) for field in ("row", "row_offset", "length"))
    step = max(1, BLOCK // row_len)
    for first in range(0, len(positions), step):
        block = np.asarray(positions[first : first + step])
        low, high = np.searchsorted(row, [first, first + len(block)])
        begin = ((row[low:high] - first) * row_len + offset[low:high]).astype(np.int64)
        wanted = np.zeros_like(block).ravel()
        for start, size in zip(begin.tolist(), length[low:high].tolist(), strict=True):
            wanted[start : start + size] = np.arange(size)
        wrong = block != wanted.reshape(block.shape)
        if wrong.any():
            at, place = (int(number) for number in np.argwhere(wrong)[0])
            what = f"position id {int(block[at, place])} at place {place}, its piece begins {int(wanted.reshape(block.shape)[at, place])} before"
            return Verdict(False, f"row {first + at:,}: {what}", {"positions": block.size}, Worst(f"row {first + at:,}", what))
    return Verdict(True, f"{len(positions) * row_len:,} position ids count from 0 in each piece", {"positions": len(positions) * row_len})


# Lines of a JSONL store against their source rows, field by field.


@dataclass(frozen=True, slots=True)
class Line:
    """One line.

    Attributes:
        id: record id of its row.
        stored: the object on the line.
        made: the line of the row, converted again; `None` where it gives none.
        plain: the texts of the row by a second reading; `None` where only the schema can read it.
    """

    id: str
    stored: Mapping[str, Any]
    made: Mapping[str, Any] | None
    plain: Mapping[str, str] | None


def _line_fault(line: Line, numbers: Counter[str]) -> str | None:
    numbers["lines_checked"] += 1
    numbers["lines_read_twice"] += line.plain is not None
    if line.made is None:
        return "its row gives no line"
    if line.stored != line.made or _types(line.stored) != _types(line.made):
        key = next(
            (key for key in {**line.made, **line.stored} if _written(line.stored, key) != _written(line.made, key)), "order of fields"
        )
        return f"{key} is {_written(line.stored, key)[:200]}, its row gives {_written(line.made, key)[:200]}"
    for key, text in (line.plain or {}).items():
        if as_text(line.stored[key]) != text:
            return f"{key} is {_written(line.stored, key)[:200]}, by a second reading its row says {text[:200]!r}"
    return None


LINES_DIFFER = "lines differ from their rows"


def lines_verdict(files: Sequence[Verdict], *, stored: int) -> Verdict:
    """Return the verdict on several files; `stored`: number of lines, all of which must have a row."""
    numbers, worst = (
        dict.fromkeys(check_lines.figures, 0) | added(files),
        next((file.worst for file in files if file.worst is not None), None),
    )
    if numbers["lines_checked"] != stored:
        what = f"{stored:,} lines are stored, {numbers['lines_checked']:,} rows of the sources are theirs"
        return Verdict(False, what, numbers, worst or Worst("index", what))
    if worst is not None:
        return some_fail(int(numbers["lines_failed"]), stored, LINES_DIFFER, worst, numbers)
    return holds(check_lines.say, numbers)


def _lines_hold(numbers: Numbers) -> str:
    return f"{numbers['lines_checked']:,} lines are those of their rows, {numbers['lines_read_twice']:,} also by a second reading"


check_lines = Rule(_line_fault, ("lines_checked", "lines_failed", "lines_read_twice"), _lines_hold, ("lines_failed", LINES_DIFFER))


def _types(row: Mapping[str, Any]) -> list[type]:
    """Types of the values: 1, 1.0 and true are equal in Python, but not to a trainer."""
    return [type(value) for value in row.values()]


def _written(row: Mapping[str, Any], key: str) -> str:
    return dumps(row[key]) if key in row else "missing"


# Gold answers, compared with a second reading that shares no code with the first.

_OPERATORS: Mapping[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Converted:
    """A gold that no second reading can find: the user's own schema computed it, and gave the same value again."""


CONVERTED = Converted()


@dataclass(frozen=True, slots=True)
class Gold:
    """A stored gold.

    Attributes:
        id: of its record.
        prompt: its prompt.
        stored: as it is stored.
        second: the value of `second_reading` or `worked_out`; `None` where it is missing. `CONVERTED` golds are counted separately.
    """

    id: str
    prompt: str
    stored: object
    second: Fraction | Converted | None


def _gold_fault(gold: Gold, numbers: Counter[str]) -> str | None:
    numbers["golds_checked"] += 1
    if isinstance(gold.second, Converted):
        numbers["golds_converted_again"] += 1
    elif gold.second is None or _exactly(gold.stored) != gold.second:
        return f"gold is {gold.stored!r}, a second reading gives {gold.second}; prompt: {gold.prompt[-80:]!r}"
    else:
        numbers["golds_agreed"] += 1
    return None


def _golds_hold(numbers: Numbers) -> str:
    converted = numbers.get("golds_converted_again", 0)
    note = f"; {converted:,} are their schema's own and were only converted again" if converted else ""
    return f"{numbers['golds_agreed']:,} of {numbers['golds_checked']:,} golds agree with a second reading{note}"


check_golds = Rule(_gold_fault, ("golds_checked", "golds_agreed"), _golds_hold, ("", "golds do not agree"))


def second_reading(answer: str) -> Fraction | None:
    """Return the number after ``####`` in an answer, read character by character; `None` for none, or for several that differ."""
    marked = [piece.strip().split("\n")[0] for piece in answer.split("####")[1:]]
    cleaned = {"".join(char for char in line if char not in "$, \t\r\u00a0").replace("\u2212", "-").rstrip(".") for line in marked}
    return _fraction(cleaned.pop()) if len(cleaned) == 1 else None


def worked_out(question: str) -> Fraction | None:
    """Return the exact value of the arithmetic in ``What is (12 + 3) * 4?``; `None` for any other text."""
    expression = question.strip().removeprefix("What is ").removesuffix("?")
    if len(expression) != len(question.strip()) - len("What is ?"):
        return None
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def stands_in(gold: object, row: object) -> bool:
    """Whether a value in a row is the gold: the same text, or the same number, commas aside."""
    if isinstance(row, Mapping):
        return any(stands_in(gold, inner) for inner in row.values())
    if isinstance(row, list | tuple):
        return any(stands_in(gold, inner) for inner in row)
    if row is None or isinstance(row, bool):
        return False
    if str(row).strip() == str(gold).strip():
        return True
    number = _fraction(str(row).strip().replace(",", ""))
    return number is not None and number == _fraction(str(gold))


def is_told(arguments: str, row: object) -> bool:
    """Whether what a verifier is told stands in a row: as a value, as a text with it, or, where it is an object, field by field."""
    told, values = json.loads(arguments), set(_values(row))
    fields = told.values() if isinstance(told, dict) else ()
    return _sorted(told) in values or (bool(fields) and all(_sorted(value) in values for value in fields))


_sorted = json.JSONEncoder(sort_keys=True, default=str).encode


def _values(value: object) -> Iterator[str]:
    """Yield the values of an object as JSON, and those of objects in it; each text also as what it says in JSON or in Python's notation."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield _sorted(inner)
            yield from _values(inner)
    elif isinstance(value, str):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                yield _sorted(read(value))


def as_number(text: object) -> Fraction | None:
    """Return the number of a gold that is stored as text, for verifiers other than ``number``."""
    return _fraction(str(text))


def _value(node: Any) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError(f"no arithmetic: {ast.dump(node)}")


def _exactly(gold: object) -> Fraction | None:
    """Return a stored gold as an exact number: a JSON float by its shortest decimal. Text such as ``"18.0"`` is none: a verifier compares numbers."""
    return _fraction(repr(gold)) if type(gold) in (int, float) else gold if isinstance(gold, Fraction) else None


def _fraction(text: str) -> Fraction | None:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None


# Files whose lines are checked one by one, such as preference pairs and labelled answers. The key that decides the split is never in
# files of both sides.

Rows = Iterable[Mapping[str, Any]]
_ON_BOTH_SIDES = "its {} is in the training file as well"


def judged(
    files: Mapping[str, Rows], key: str, fault_of: Callable[[str, Mapping[str, Any]], str | None]
) -> Iterator[tuple[str, str, Mapping[str, Any], str | None]]:
    """Yield for each row of the files: file, location, row, and its fault or `None`.

    Args:
        files: rows by file name; names that end with ``test`` are held out.
        key: the field whose value must not be in both a training and a held-out file.
        fault_of: file and row → any other fault.
    """
    seen = Digests()
    for name, rows in files.items():
        for number, row in enumerate(rows, 1):
            fault, digest = fault_of(name, row), fingerprint(row.get(key))
            if not name.endswith("test"):
                seen.add(digest)
            elif fault is None and digest in seen:
                fault = _ON_BOTH_SIDES.format(key)
            yield name, f"{name} line {number:,}", row, fault


# Preference pairs: one prompt, two different answers, nothing empty, no prompt on both sides of the split. Labelled answers likewise.

FIELDS = ["prompt", "chosen", "rejected"]
UNPAIRED_FIELDS = ["prompt", "completion", "label"]
RANKED_FIELDS = ["prompt", "responses", "rewards"]
OPTIONAL_PAIR_FIELDS = ("tools", "chat_template_kwargs", "margin")
"""Optional fields of pairs and labelled answers."""


def check_pairs(
    train: Rows,
    test: Rows,
    unpaired: Rows = (),
    unpaired_test: Rows = (),
    ranked: Rows = (),
    ranked_test: Rows = (),
    *,
    one_domain: bool = False,
) -> Verdict:
    """Check every pair, labelled answer and list, and that no prompt of the training files is held out. In `one_domain` no answer to a prompt may be labelled
    good and bad."""
    answers = Digests()
    files = {
        "train": train,
        "unpaired": unpaired,
        "ranked": ranked,
        "test": test,
        "unpaired_test": unpaired_test,
        "ranked_test": ranked_test,
    }
    counted = (
        "pairs_checked",
        "pairs_failed",
        "longer_chosen",
        "prompts_in_both",
        "labelled_checked",
        "desirable",
        "lists_checked",
        "tied",
    )
    numbers = dict.fromkeys(counted, 0)
    worst: Worst | None = None
    for name, where, row, fault in judged(files, "prompt", _pair_fault):
        labelled, ordered = name.startswith("unpaired"), name.startswith("ranked")
        if labelled and one_domain and fault is None and contradicted(row, answers):
            fault = "the same answer has the other label as well"
        numbers["lists_checked" if ordered else "labelled_checked" if labelled else "pairs_checked"] += 1
        if fault is not None:
            numbers["prompts_in_both"] += fault == _ON_BOTH_SIDES.format("prompt")
            numbers["pairs_failed"] += 1
            worst = worst or Worst(where, f"{fault}: {shown(row)}")
        elif labelled:
            numbers["desirable"] += row["label"]
        elif ordered:
            numbers["tied"] += len(set(row["rewards"])) < len(row["rewards"])
        else:
            numbers["longer_chosen"] += len(str(row["chosen"])) > len(str(row["rejected"]))
    if not numbers["lists_checked"]:
        del numbers["lists_checked"], numbers["tied"]
    if worst is not None:
        count = numbers["pairs_checked"] + numbers["labelled_checked"] + numbers.get("lists_checked", 0)
        return some_fail(numbers["pairs_failed"], count, "pairs fail", worst, numbers)
    share = numbers["longer_chosen"] / max(1, numbers["pairs_checked"])
    summary = f"{numbers['pairs_checked']:,} pairs are sound; in {share:.0%} the chosen answer is the longer one"
    if numbers["labelled_checked"]:
        summary += f"; {numbers['labelled_checked']:,} labelled answers are sound, {numbers['desirable']:,} of them desirable"
    if "lists_checked" in numbers:
        summary += f"; {numbers['lists_checked']:,} lists are in the order of their rewards, {numbers['tied']:,} with equal ones"
    return Verdict(True, summary, numbers)


def check_prompts(train: Rows, test: Rows) -> Verdict:
    """Check that no prompt of a domain has two golds."""
    known, checked, failed, worst = Digests(), 0, 0, None
    for name, rows in {"train": train, "test": test}.items():
        for number, row in enumerate(rows, 1):
            checked += 1
            if contradicted(row, known):
                failed, worst = (
                    failed + 1,
                    worst or Worst(f"{name} line {number:,}", f"the same prompt has another gold as well: {shown(row)}"),
                )
    if worst is not None:
        return some_fail(failed, checked, "prompts have two golds", worst, {"prompts_checked": checked, "prompts_failed": failed})
    return Verdict(True, f"each of {checked:,} prompts has one gold", {"prompts_checked": checked, "prompts_failed": 0})


def contradicted(row: Mapping[str, Any], known: Digests) -> bool:
    """Whether one of the lines before, whose digests are `known`, says otherwise; adds this one."""
    if (said := claim(row)) is None:
        return False
    about, whole = fingerprint(said[0]), fingerprint(said)
    other = about in known and whole not in known
    known.add(about)
    known.add(whole)
    return other


def claim(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what a labelled answer or a prompt with a gold is about, and what it says; `None` for another line. Golds that are plain numbers or fractions are
    equal by value, others without case and white space."""
    value = row["label"] if "label" in row else row.get("gold", "")
    if value == "":
        return None
    about = json.dumps({key: row[key] for key in row.keys() - {"label", "gold", "gold_text"}}, sort_keys=True)
    words = "".join(str(value).casefold().split())
    number = re.fullmatch(r"([+-]?(?:[0-9]{1,3}(?:,[0-9]{3}){1,99}|[0-9]{1,400}))(?:\.([0-9]{1,400})|/([0-9]{1,400}))?", words)
    if number is None or (number[3] and not int(number[3])):
        return about, words
    return about, str(Fraction(int(number[1].replace(",", "") + (number[2] or "")), 10 ** len(number[2] or "") * int(number[3] or 1)))


def _list_fault(row: Mapping[str, Any]) -> str | None:
    rewards, answers = row["rewards"], row["responses"]
    if len(rewards) != len(answers) or len(answers) < 2:
        return f"{len(rewards)} rewards of {len(answers)} responses"
    if {*map(type, rewards)} != {float}:
        return f"rewards {rewards}, which are no floats"
    if any(first < second for first, second in pairwise(rewards)) or rewards[0] == rewards[-1]:
        return f"rewards {rewards}, not from the best to a worse one"
    if {*map(type, answers)} != {type(row["prompt"])}:
        return "strings and lists of messages are mixed"
    empty = [number for number, answer in enumerate(answers) if _is_empty(answer)]
    return f"response {empty[0]} is empty" if empty else None


def _pair_fault(file: str, row: Mapping[str, Any]) -> str | None:
    labelled, ordered = file.startswith("unpaired"), file.startswith("ranked")
    needed = RANKED_FIELDS if ordered else UNPAIRED_FIELDS if labelled else FIELDS
    if list(row)[: len(needed)] != needed or not set(row) <= {*needed, *OPTIONAL_PAIR_FIELDS}:
        return f"fields {list(row)}, needs {needed} and may have {', '.join(OPTIONAL_PAIR_FIELDS)}"
    if isinstance(row["prompt"], str) and not {"tools", "chat_template_kwargs"}.isdisjoint(row):
        return "tools and variables of a chat template stand beside strings, which no template renders"
    if labelled and not isinstance(row["label"], bool):
        return f"label is {row['label']!r}, needs true or false"
    texts = ["prompt"] if ordered else [field for field in needed if field != "label"]
    if len({type(row[field]) for field in texts}) != 1:
        return "strings and lists of messages are mixed"
    for field in texts:
        if _is_empty(row[field]):
            return f"{field} is empty"
    if ordered:
        return _list_fault(row)
    return "chosen equals rejected" if not labelled and row["chosen"] == row["rejected"] else None


def fits_strings(line: Mapping[str, Any]) -> bool:
    """Whether a line of messages says no more than strings would: one message a column, of a user or an assistant, with nothing but a text."""
    if not {"tools", "chat_template_kwargs"}.isdisjoint(line):
        return False
    columns = [line[name] for name in ("prompt", "chosen", "rejected", "completion") if name in line] + line.get("responses", [])
    return all(
        len(messages) == 1
        and messages[0].keys() == {"role", "content"}
        and messages[0]["role"] in ("user", "assistant")
        and isinstance(messages[0]["content"], str)
        for messages in columns
    )


def _is_empty(value: Any) -> bool:
    """Whether a string, or the last of a list of messages, is blank and calls no tool."""
    if isinstance(value, str):
        return not value.strip()
    if not value:
        return True
    content = value[-1].get("content", "")
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return not (text.strip() or value[-1].get("tool_calls"))
