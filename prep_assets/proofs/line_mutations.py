"""Mutations of JSONL stores: what goes wrong with pairs, prompts and golds, done on purpose to copies of lines (see `mutations`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prep_assets.proofs.lines_match import Line
from prep_assets.proofs.mutations import Mutation

Change = Callable[[Sequence[Line], int], list[Line] | None]


def _with(lines: Sequence[Line], at: int, changes: Mapping[str, Any]) -> list[Line] | None:
    stored = {**lines[at].stored, **changes}
    if stored == lines[at].stored and all(type(stored[key]) is type(lines[at].stored[key]) for key in changes):
        return None
    return [*lines[:at], replace(lines[at], stored=stored), *lines[at + 1 :]]


def _field(name: str, value: Callable[[Any], Any]) -> Change:
    """One field of one line becomes something else; only lines that have it."""
    return lambda lines, at: _with(lines, at, {name: value(lines[at].stored[name])}) if name in lines[at].stored else None


def _swapped(lines: Sequence[Line], at: int) -> list[Line] | None:
    stored = lines[at].stored
    return _with(lines, at, {"chosen": stored["rejected"], "rejected": stored["chosen"]}) if "chosen" in stored else None


def _all_swapped(lines: Sequence[Line], at: int) -> list[Line] | None:
    changed = [(_swapped([line], 0) or [line])[0] for line in lines]
    return None if changed == list(lines) else changed


def _of_the_next(name: str) -> Change:
    """Every line has the field of the next one."""

    def change(lines: Sequence[Line], at: int) -> list[Line] | None:
        values = [line.stored.get(name) for line in lines]
        if len(lines) < 2 or len({str(value) for value in values}) < 2:
            return None
        shifted = zip(lines, [*values[1:], values[0]], strict=True)
        return [line if value is None else replace(line, stored={**line.stored, name: value}) for line, value in shifted]

    return change


def _last(change: Callable[[str], str]) -> Callable[[Any], Any]:
    """`change` of a text, of the last of some messages, or of the last part of its content; what has no text, as a lone tool call, stays."""

    def changed(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        key = next((key for key in ("text", "content") if value[-1].get(key)), None)
        return value if key is None else [*value[:-1], {**value[-1], key: changed(value[-1][key])}]

    return changed


_shorter = _last(lambda text: text[: len(text) // 2] or text + text)
_longer = _last(lambda text: text + " Hurry.")


def _blank(value: Any) -> Any:
    return " " if isinstance(value, str) else [{**value[-1], "content": " "}]


def _reweighed(change: Callable[[float], float | None]) -> Change:
    """The better answer with other loss weights in its parts; only answers that have such parts."""

    def part(value: Mapping[str, Any]) -> dict[str, Any]:
        weight = change(value["loss_weight"]) if "loss_weight" in value else None
        others = {key: other for key, other in value.items() if key != "loss_weight"}
        return others if weight is None else {**others, "loss_weight": weight}

    def message(value: Mapping[str, Any]) -> Mapping[str, Any]:
        content = value.get("content")
        return {**value, "content": [part(each) for each in content]} if isinstance(content, list) else value

    def changed(lines: Sequence[Line], at: int) -> list[Line] | None:
        answer = lines[at].stored.get("chosen")
        return _with(lines, at, {"chosen": [message(each) for each in answer]}) if isinstance(answer, list) else None

    return changed


def _equal(lines: Sequence[Line], at: int) -> list[Line] | None:
    stored = lines[at].stored
    return _with(lines, at, {"chosen": stored["rejected"]}) if "chosen" in stored else None


def _without(name: str) -> Change:
    def change(lines: Sequence[Line], at: int) -> list[Line] | None:
        stored = {key: value for key, value in lines[at].stored.items() if key != name}
        return [*lines[:at], replace(lines[at], stored=stored), *lines[at + 1 :]] if name in lines[at].stored else None

    return change


def _lost(lines: Sequence[Line], at: int) -> list[Line]:
    """Its row gives nothing any more."""
    return [*lines[:at], replace(lines[at], made=None), *lines[at + 1 :]]


def _number(change: Callable[[float], Any]) -> Callable[[Any], Any]:
    return lambda gold: change(gold) if isinstance(gold, float) else gold


MATCH, SANITY, GOLD = "source_match", "pair_sanity", "gold_answers"

PAIR_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("one pair swapped", MATCH, _swapped),
    Mutation("all pairs swapped", MATCH, _all_swapped),
    Mutation("prompts of the next pair", MATCH, _of_the_next("prompt")),
    Mutation("a prompt altered", MATCH, _field("prompt", _longer)),
    Mutation("a better answer truncated", MATCH, _field("chosen", _shorter)),
    Mutation("a worse answer truncated", MATCH, _field("rejected", _shorter)),
    Mutation("a label turned round", MATCH, _field("label", lambda label: not label)),
    Mutation("a pair that nobody wrote", MATCH, _lost),
    Mutation("loss weights of an answer lost", MATCH, _reweighed(lambda weight: None)),
    Mutation("loss weights of an answer turned round", MATCH, _reweighed(lambda weight: 1.0 - weight)),
    Mutation("an empty prompt", SANITY, _field("prompt", _blank)),
    Mutation("an empty answer", SANITY, _field("chosen", _blank)),
    Mutation("both answers the same", SANITY, _equal),
    Mutation("a worse answer lost", SANITY, _without("rejected")),
)
"""Corruptions of preference pairs and labelled answers."""

PROMPT_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a prompt altered", MATCH, _field("prompt", _longer)),
    Mutation("prompts shifted against golds", MATCH, _of_the_next("prompt")),
    Mutation("golds shifted against prompts", MATCH, _of_the_next("gold")),
    Mutation("a prompt truncated", MATCH, _field("prompt", _shorter)),
    Mutation("a prompt that nobody wrote", MATCH, _lost),
    Mutation("a gold as a whole number", MATCH, _field("gold", _number(lambda gold: int(gold) if gold.is_integer() else gold))),
    Mutation("a gold as text", GOLD, _field("gold", _number(str))),
    Mutation("a gold off by one", GOLD, _field("gold", _number(lambda gold: gold + 1))),
    Mutation("a gold of the other sign", GOLD, _field("gold", _number(lambda gold: -gold))),
    Mutation("a gold tenfold", GOLD, _field("gold", _number(lambda gold: gold * 10))),
    Mutation("a gold that is no number", GOLD, _field("gold", _number(lambda gold: float("nan")))),
)
"""Corruptions of RL prompts and of generated questions."""


def _side(name: str, change: Callable[[list[str], Mapping[str, Any]], list[str]]) -> Change:
    """One side of a contrastive row becomes other texts; only rows that have it."""

    def changed(lines: Sequence[Line], at: int) -> list[Line] | None:
        stored = lines[at].stored
        return _with(lines, at, {name: change(stored[name], stored)}) if stored.get(name) else None

    return changed


CONTRASTS = "contrast_sanity"
CONTRAST_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a query altered", MATCH, _field("query", _longer)),
    Mutation("queries of the next row", MATCH, _of_the_next("query")),
    Mutation("positives of the next row", MATCH, _of_the_next("positives")),
    Mutation("negatives of the next row", MATCH, _of_the_next("negatives")),
    Mutation("a negative lost", MATCH, _side("negatives", lambda texts, row: texts[:-1])),
    Mutation("a positive truncated", MATCH, _side("positives", lambda texts, row: [_shorter(texts[0]), *texts[1:]])),
    Mutation("a row that nobody wrote", MATCH, _lost),
    Mutation("an empty query", CONTRASTS, _field("query", _blank)),
    Mutation("an empty positive", CONTRASTS, _side("positives", lambda texts, row: [" ", *texts[1:]])),
    Mutation("no positive", CONTRASTS, _side("positives", lambda texts, row: [])),
    Mutation("a positive among the negatives", CONTRASTS, _side("negatives", lambda texts, row: [*texts, row["positives"][0]])),
    Mutation("a negative twice", CONTRASTS, _side("negatives", lambda texts, row: [*texts, texts[0]])),
    Mutation("the query among the positives", CONTRASTS, _side("positives", lambda texts, row: [*texts, row["query"]])),
)
"""Corruptions of contrastive rows."""
