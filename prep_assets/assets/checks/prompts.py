"""Checks of RL prompts and of the arithmetic curriculum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from prep_assets.assets.checks.every_store import IDENTITY, together
from prep_assets.assets.checks.lines_again import LineByNumber, Wanted
from prep_assets.assets.commands import build_command
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.reading.pinned import domain_of, pinned
from prep_assets.assets.stage import Check, FromLines, Store
from prep_assets.assets.writing.message_rows import sample_of, turns_of
from prep_assets.assets.writing.prompts import prompt_row
from prep_assets.config.models import Rl
from prep_assets.disk.columns import at
from prep_assets.errors import Refused, StoreError
from prep_assets.proofs.gold import CONVERTED, Converted, as_number, check_golds, second_reading, stands_in, worked_out
from prep_assets.proofs.identity import Conversation, prove_identity
from prep_assets.proofs.inline_reasoning import read_again
from prep_assets.proofs.plain_forms import PlainDerivation
from prep_assets.proofs.trained_texts import MaskOptions
from prep_assets.proofs.verdict import Verdict
from prep_assets.records.files import record_id
from prep_assets.records.read import read_blocks
from prep_assets.samples import USER, Prompt, Record
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import Convert
from prep_assets.stores.lines import open_lines

Gold = tuple[str, str, object, Fraction | Converted | None]
"""What `check_golds` takes of each prompt."""


def prompt_golds(store: Store) -> Verdict:
    """Every gold against a second reading of its row."""
    return together(check_golds(_golds_of(store, str(stream.stem))) for stream in store.asset.streams.values())


def _golds_of(store: Store, name: str) -> Iterator[Gold]:
    """Every prompt of a file with its gold and a second reading of its source row."""
    family, lines = store.workspace.family(Rl), open_lines(store.directory, name)
    at_line = LineByNumber(lines)
    for number, domain_name in enumerate(lines.sources):
        domain, sources = domain_of(family, domain_name), pinned(store.workspace, Rl, store.raw, domain_name)
        convert = converter(domain, Prompt)
        places = lines.of(number)
        wanted = Wanted(at(lines.places, places), places)
        for index, file in enumerate((*sources.files, *sources.test_files)):
            for block in read_blocks(file, index, block_bytes=1 << 20, txt=domain.txt):
                for record in block.records:
                    line = wanted.take(index << 40 | record.row)
                    if line is not None:
                        yield _second(record, convert, at_line(line), f"{domain_name}/{record_id(file, record.row)}")
        for line in wanted.rest():
            file_number, row = (int(lines.index[column][line]) for column in ("file", "row"))
            yield f"{domain_name}/{file_number}:{row}", "", at_line(line)["gold"], None


def _second(record: Record, convert: Convert, content: Mapping[str, Any], identity: str) -> Gold:
    prompt = content["prompt"] if isinstance(content["prompt"], str) else str(content["prompt"])
    gold = content["gold"] if "verifier" not in content else as_number(content["gold"])
    answers = [value for value in record.payload.values() if isinstance(value, str) and "####" in value]
    if answers:
        return identity, prompt, gold, second_reading(answers[0])
    arithmetic = worked_out(prompt)
    if arithmetic is not None:
        return identity, prompt, gold, arithmetic
    if stands_in(content["gold"], record.payload):
        return identity, prompt, 1, Fraction(1)
    # a schema of the user's own works it out: the only check left is that it gives the same again
    try:
        example = apply(convert, record.payload)
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
    wanted, derive = Wanted(tokens.row), PlainDerivation(MaskOptions(), template, typed_controls=False, prompted=True)
    for line, content in enumerate(open_lines(upstream.directory, name)):
        if (number := wanted.take(line)) is not None:
            sample = read_again(sample_of(content, turns_of(content["prompt"], USER)), store.recipe, shown=template.shows_thinking)
            derived = derive(sample)
            yield Conversation(f"{name} line {line + 1}", tokens.record(number, "tokens"), derived.text, derived.controls, derived.typed)
