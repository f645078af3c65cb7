"""The full grid: chats of every data set at hand, with every template, on every tokenizer: through the build's own code, and proven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from same_bytes import CHATS, PAIRS

from prep_assets.config.family import REASONING_TAGS
from prep_assets.config.mask import MaskPolicy
from prep_assets.data.files import SourceFile, find_files
from prep_assets.data.read import read_blocks
from prep_assets.errors import PrepAssetsError, Refused
from prep_assets.pipeline.conversations import Conversations
from prep_assets.pipeline.examples import Item
from prep_assets.pipeline.media import RecordFiles
from prep_assets.proofs.chat_blocks import PlainDerivation
from prep_assets.proofs.derive import MaskOptions
from prep_assets.proofs.mask import Conversation, Left, prove_identity, prove_masks
from prep_assets.samples import Record, Sample
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets.text.encode import Encoder
from prep_assets.text.engines import Engines, choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.render import InlineReasoning
from prep_assets.text.vocabulary import load_vocabulary
from prep_assets_tests.masks.bound import bind
from prep_assets_tests.masks.trl import tokenizer_folder

TOKENIZERS = ("gpt2", "smollm", "mistral_v3")
DATA = {**CHATS, "identity": ("llama_factory/identity.json", "alpaca", {}), **PAIRS}
"""File, schema and its options; of pairs the prompt with the better answer is one chat."""

BLOCKED = ("render/mask_not_provable",)
"""Refusals that mean that derivations differ, which no chat of these data sets may come to."""


@dataclass
class Cell:
    """One data set with one template on one tokenizer.

    Attributes:
        read, kept: rows.
        tagged: kept rows whose mask is what the template's own tags, or those of TRL's training variant, say as well.
        refused: row, reason and detail of every other one.
        faults: proofs that do not hold.
    """

    read: int = 0
    kept: int = 0
    tagged: int = 0
    refused: list[tuple[int, str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def published(real_data: Path) -> list[str]:
    """The templates that TRL keeps."""
    return sorted(path.stem for path in (real_data / "chat_templates" / "trl").glob("*.jinja"))


@cache
def engines_for(folder: Path) -> Engines:
    """The engines of a published tokenizer. Control tokens that a template adds never touch ordinary text, so all templates share them."""
    return choose_engine(load_vocabulary(str(folder)))


@dataclass(frozen=True)
class Chats:
    """Rows of one data set, evenly spread over it: those that its schema reads, and the refusals of the others."""

    name: str
    items: tuple[Item, ...]
    refused: tuple[tuple[int, Refused], ...]


@cache
def chats(real_data: Path, most: int) -> tuple[Chats, ...]:
    """`most` rows of each data set."""
    return tuple(_chats(real_data, name, most) for name in DATA)


def records(real_data: Path, name: str) -> tuple[SourceFile, list[Record]]:
    """All rows of a data set."""
    [file] = find_files([str(real_data / DATA[name][0])], real_data)
    return file, [record for block in read_blocks(file, 0) for record in block.records]


def _chats(real_data: Path, name: str, most: int) -> Chats:
    (file, rows), (_, schema, options) = records(real_data, name), DATA[name]
    convert, items, refused = convert_with(schema, options), [], []
    for record in rows[:: max(1, len(rows) // most)][:most]:
        try:
            example: Any = apply(convert, record.payload)
        except Refused as refusal:
            refused.append((record.row, refusal))
            continue
        sample = example if isinstance(example, Sample) else Sample((*example.prompt, *example.chosen), example.tools)
        items.append(Item(file, record, sample))
    return Chats(name, tuple(items), tuple(refused))


class _Refusals:
    """What a quarantine is to the pipeline."""

    def __init__(self) -> None:
        self.of: list[tuple[int, str, str]] = []

    def add(self, id: str, stage: str, reason: str, detail: str, payload: Any, *, length: int | None = None) -> None:
        self.of.append((int(id.rpartition(":")[2]) - 1, f"{stage}/{reason}", detail))


def cells(
    real_data: Path, template: str, tokenizer: str, data: Sequence[Chats], folder: Path, *, shipped: bool = False
) -> Iterator[tuple[str, Cell]]:
    """Every data set with one template, a shipped one or one of TRL's, on one tokenizer."""
    base = real_data / "tokenizers" / tokenizer
    try:
        if shipped:
            found = bind(base, template)
            vocabulary, bound = found.vocabulary, found.template
        else:
            vocabulary = load_vocabulary(str(tokenizer_folder(real_data, template, folder, tokenizer)))
            bound = load_template("tokenizer", vocabulary)
            variant = real_data / "chat_templates" / "trl" / f"{template}_training.jinja"
            bound = replace(bound, training=variant.read_text("utf-8") if variant.exists() else "")
        encoder = Encoder(vocabulary, engines_for(base), MaskPolicy())
    except PrepAssetsError as error:
        for each in data:
            yield each.name, Cell(faults=[f"does not load: {error}"])
        return
    derive = PlainDerivation(MaskOptions(), bound, typed_controls=False)
    reasoning = InlineReasoning("auto", REASONING_TAGS, bound.form.shows_reasoning)
    conversations = Conversations(bound, encoder, reasoning, "text", RecordFiles(None, None), _Refusals())  # type: ignore[arg-type]
    for each in data:
        conversations.quarantine = _Refusals()  # type: ignore[assignment]
        yield each.name, _cell(each, conversations, derive)


def _cell(data: Chats, conversations: Conversations, derive: PlainDerivation) -> Cell:
    vocabulary, refusals = conversations.encoder.vocabulary, conversations.quarantine
    assert isinstance(refusals, _Refusals)
    kept, encoded = conversations.encode(data.items)
    unread = [(row, f"schema/{refusal.reason}", str(refusal)) for row, refusal in data.refused]
    found = Cell(len(data.items) + len(unread), len(kept), refused=[*refusals.of, *unread])
    found.faults += [f"{data.name}:{row}: {detail}" for row, reason, detail in refusals.of if reason in BLOCKED]
    rows = []
    for at, item in enumerate(kept):
        sample = conversations.reasoning.read(item.example)
        assert isinstance(sample, Sample)
        ids, mask = (part[encoded.offsets[at] : encoded.offsets[at + 1]] for part in (encoded.ids, encoded.loss))
        derived = derive(sample)
        rows.append(Conversation(f"{data.name}:{item.record.row}", ids, mask, Left(derived, derived.expected)))
        found.tagged += derived.tagged
    for verdict in (prove_masks(rows, vocabulary), prove_identity(rows, vocabulary)):
        found.faults += [] if verdict.passed else [verdict.summary]
    if found.kept + len(found.refused) != found.read:
        found.faults.append(f"{found.read} read, {found.kept} kept, {len(found.refused)} refused")
    return found
