"""Show leaks: the passage of a training example beside that of the held-out text which it shares."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import SequenceMatcher
from random import Random

import numpy as np
from msgspec import Struct

from prep_assets.data.quarantine import renumbered
from prep_assets.extensions.leaks.overlap import RULES, Rule
from prep_assets.extensions.leaks.search import HeldOut
from prep_assets.extensions.quality.examined import examples_of, source_to_judge
from prep_assets.extensions.quality.units import normalized, odd, replaced
from prep_assets.pipeline.verdicts import read_verdicts
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published

AROUND = 80
"""Characters that are shown before and after a passage."""
Excerpt = tuple[str, str, str]
"""The text before a passage, the passage, and the text after it."""


class ShownLeak(Struct, frozen=True):
    """A leak with its texts.

    Attributes:
        example, record: ids of the training record and of the held-out one, in `held`.
        detail: how much they share, by which rule.
        training, held_out: the longest passage that they share, as it stands in each.
    """

    example: str
    held: str
    record: str
    detail: str
    training: Excerpt
    held_out: Excerpt


def shown_leaks(workspace: Workspace, published: Published, family: str, limit: int, *, drawn: bool = False) -> Iterator[ShownLeak]:
    """The first leaks of a store of `<family>_leaks`, or some drawn at random, with texts that are read from the sources again."""
    name = published.manifest.partition
    source = source_to_judge(workspace, family, name)
    names = [file.name for file in (*source.sources.files, *source.sources.test_files)]
    table = read_verdicts(published)
    rows = range(table.num_rows)
    chosen = sorted(Random(0).sample(rows, min(limit, len(rows)))) if drawn else [*rows[:limit]]
    leaks = table.take(np.array(chosen, np.int64)).to_pylist()
    ids = [f"{names[leak['file']]}:{leak['row'] + 1}" for leak in leaks]
    leaks = [leak | {name: renumbered(leak[name], 1) for name in ("record", "detail")} for leak in leaks]
    training = _texts(workspace, HeldOut(family, name), ids)
    wanted: dict[HeldOut, list[str]] = {}
    for leak in leaks:
        wanted.setdefault(HeldOut(leak["family"], leak["domain"]), []).append(leak["record"])
    held_out = {held: _texts(workspace, held, records) for held, records in wanted.items()}
    for leak, example in zip(leaks, ids, strict=True):
        held, rule = HeldOut(leak["family"], leak["domain"]), RULES[leak["rule"]]
        texts = "\n\n".join(text for _, text in training[example]), rule.text(held_out[held][leak["record"]])
        spans = longest_passage(rule, *texts)
        yield ShownLeak(example, held.label, leak["record"], leak["detail"], _excerpt(texts[0], *spans[0]), _excerpt(texts[1], *spans[1]))


def _texts(workspace: Workspace, held: HeldOut, ids: Collection[str]) -> Mapping[str, list[tuple[str, str]]]:
    """Id of a record → the texts of its example with their roles."""
    found: dict[str, list[tuple[str, str]]] = {}
    for examples, _, _ in examples_of(source_to_judge(workspace, held.family, held.name).reading(), "read"):
        found |= {name: parts for name, parts in zip(examples.ids, examples.parts, strict=True) if name in ids} if ids else {}
        if len(found) == len(set(ids)):
            break
    return found


def longest_passage(rule: Rule, training: str, held_out: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where the longest run of units that two texts share stands in each of them."""
    found = SequenceMatcher(None, rule.units(training), rule.units(held_out), autojunk=False).find_longest_match()
    if not found.size:
        return (0, 0), (0, 0)
    return _stands(rule, training, found.a, found.size), _stands(rule, held_out, found.b, found.size)


def _stands(rule: Rule, text: str, first: int, count: int) -> tuple[int, int]:
    """Where some units of a text begin and end in it: they are cut in the text that is `normalized`."""
    places, at = list[int](), 0
    for found in odd(text).finditer(text):
        places += [*range(at, found.start()), *(min(found.start() + more, found.end() - 1) for more in range(len(replaced(found))))]
        at = found.end()
    places += range(at, len(text))
    units = rule.spans(normalized(text))[first : first + count]
    return places[units[0][0]], places[units[-1][1] - 1] + 1


def _excerpt(text: str, start: int, end: int) -> Excerpt:
    before, after = text[max(0, start - AROUND) : start], text[end : end + AROUND]
    return ("…" if start > AROUND else "") + before, text[start:end], after + ("…" if end + AROUND < len(text) else "")
