"""Checks of RL prompts and of the arithmetic curriculum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from prep_assets.assets.checks.every_store import IDENTITY, together
from prep_assets.assets.checks.lines_again import LineByNumber, LinesOfRows
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.checks.source_match import OfLines
from prep_assets.assets.checks.stored_rows import Rows
from prep_assets.assets.commands import build_command
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.stage import Check, FromLines, Store
from prep_assets.assets.writing.message_rows import sample_of, turns_of
from prep_assets.assets.writing.prompts import prompt_row
from prep_assets.config.models import Rl
from prep_assets.disk.arrays import numbers
from prep_assets.errors import Refused, StoreError
from prep_assets.proofs.gold import CONVERTED, Converted, as_number, check_golds, second_reading, stands_in, worked_out
from prep_assets.proofs.identity import Conversation, prove_identity
from prep_assets.proofs.inline_reasoning import read_again
from prep_assets.proofs.plain_forms import PlainDerivation
from prep_assets.proofs.trained_texts import MaskOptions
from prep_assets.proofs.verdict import Verdict
from prep_assets.records.files import record_id
from prep_assets.samples import USER, Prompt
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import Convert
from prep_assets.stores.lines import Lines, open_lines

Gold = tuple[str, str, object, Fraction | Converted | None]
"""What `check_golds` takes of each prompt."""


class Golds(OfLines):
    """Every gold against a second reading of its row."""

    names = ("gold_answers",)

    def files(self) -> list[Lines]:
        """The files of the store, in the order of its streams."""
        order = [stream.stem for stream in self.store.asset.streams.values()]
        return sorted(super().files(), key=lambda lines: order.index(lines.path.stem))

    def read(self, lines: Lines, rows: Iterator[Rows]) -> Verdict:
        """The verdict on a file."""
        return check_golds(self._golds(lines, rows))

    def _golds(self, lines: Lines, rows: Iterator[Rows]) -> Iterator[Gold]:
        """Every prompt of a file with its gold and a second reading of its source row."""
        second, of_rows, at_line = Second.of(self.store, self.store.partition), LinesOfRows(lines), LineByNumber(lines)
        convert = converter(second.domain, Prompt)
        for block in rows:
            for line, which in of_rows.of(block):
                identity = f"{second.name}/{record_id(second.files[block.file], block.rows[which])}"
                yield _second(block.payloads[which], convert, at_line(line), identity)
        for line in of_rows.missed():
            file, row = (int(lines.index[column][line]) for column in ("file", "row"))
            yield f"{second.name}/{file}:{row}", "", at_line(line)["gold"], None


def _second(payload: Mapping[str, Any], convert: Convert, content: Mapping[str, Any], identity: str) -> Gold:
    prompt = content["prompt"] if isinstance(content["prompt"], str) else str(content["prompt"])
    gold = content["gold"] if "verifier" not in content else as_number(content["gold"])
    answers = [value for value in payload.values() if isinstance(value, str) and "####" in value]
    if answers:
        return identity, prompt, gold, second_reading(answers[0])
    arithmetic = worked_out(prompt)
    if arithmetic is not None:
        return identity, prompt, gold, arithmetic
    if stands_in(content["gold"], payload):
        return identity, prompt, 1, Fraction(1)
    # a schema of the user's own works it out: the only check left is that it gives the same again
    try:
        example = apply(convert, payload)
    except Refused:
        return identity, prompt, content["gold"], None
    same = isinstance(example, Prompt) and prompt_row(example, "messages")["gold"] == content["gold"]
    return identity, prompt, content["gold"], CONVERTED if same else None


def arithmetic_golds(store: Store) -> Verdict:
    """Every gold against its question, worked out."""
    rows = enumerate(open_lines(store.directory, store.asset.name))
    return check_golds((f"line {number + 1}", row["prompt"], row["gold"], worked_out(row["prompt"])) for number, row in rows)


def prompt_identity(store: Store) -> Verdict:
    """The tokens of every prompt against a fresh render of its line, up to where a model continues."""
    return together(prove_identity(prompt_conversations(store, name), store.vocabulary) for name in store.streams())


PROMPT_IDENTITY = Check("tokenization_identity", IDENTITY, prompt_identity)


def prompt_conversations(store: Store, stream: str) -> Iterator[Conversation]:
    """Each record of a stream of prompts with a fresh render of its line."""
    assert isinstance(store.asset.source, FromLines)
    asset, name = store.asset.source.files[stream]
    upstream, template, tokens = (
        store.above(asset, store.partition),
        store.workspace.template(store.workspace.family(Rl)),
        store.streams()[stream],
    )
    if upstream.manifest.content_hash != store.recipe["prompts"]:
        command = build_command(store.asset.name, store.partition)
        raise StoreError(f"{asset} was built again since these tokens. Build them again: {command}")
    lines, derive = open_lines(upstream.directory, name), PlainDerivation(MaskOptions(), template, typed_controls=False, prompted=True)
    at_line = LineByNumber(lines)
    for number, line in enumerate(numbers(tokens.row)):
        if not 0 <= line < len(lines):
            raise StoreError(f"record {number:,} is line {line:,} of {name}, which has {len(lines):,}")
        content = at_line(line)
        sample = read_again(sample_of(content, turns_of(content["prompt"], USER)), store.recipe, shown=template.shows_thinking)
        derived = derive(sample)
        yield Conversation(f"{name} line {line + 1}", tokens.record(number, "tokens"), derived.text, derived.controls, derived.typed)
