"""What becomes of one kind of chat in one template: right, or refused for a reason that holds, or a fault of ours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from prep_assets.config.mask import MaskPolicy
from prep_assets.errors import CheckFailed, Refused
from prep_assets.proofs.derive import MaskOptions, derive, disagreement
from prep_assets.text.encode import Encoder
from prep_assets.text.engines import choose_engine
from prep_assets.text.render import render
from prep_assets.text.spans import check_stops, trained
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary, load_vocabulary
from prep_assets_tests.text.matrix import oracle
from prep_assets_tests.text.matrix.chats import Kind
from prep_assets_tests.text.matrix.models import MODELS, NAMED, Model
from prep_assets_tests.text.matrix.small import SMALL

ALWAYS_RIGHT = "template_drops_content", "template_refuses", "template_drops_tools", "template_reorders_content", "no_image_token"
"""Reasons that hold wherever the reference shows no render with all of the chat in it."""


@dataclass(frozen=True)
class Entry:
    """A template of the matrix. `tagged` is a source with generation tags for the same model, ``""`` where there is none."""

    name: str
    source: str
    model: Model
    tagged: str = ""


@dataclass(frozen=True)
class Cell:
    """What became of a kind of chat: the reason of its refusal, ``""`` where it is kept; and what is wrong with that, ``""`` for nothing."""

    reason: str = ""
    fault: str = ""
    has_tags: bool = False


def published(folder: Path) -> dict[str, Entry]:
    """TRL's templates; the training variant of each gives the tags."""
    sources = {path.stem: path.read_text("utf-8") for path in sorted((folder / "chat_templates" / "trl").glob("*.jinja"))}
    entries = {}
    for name, source in sources.items():
        base = name.removesuffix("_training")
        entries[name] = Entry(name, source, MODELS[base], sources.get(f"{base}_training", _own_tags(source)))
    return entries


def shipped() -> dict[str, Entry]:
    """The named templates."""
    from prep_assets.text.load_template import named_templates

    return {name: Entry(name, source, NAMED[name], _own_tags(source)) for name, source in named_templates().items()}


def small() -> dict[str, Entry]:
    """Own small templates."""
    return {name: Entry(name, source, model) for name, (source, model) in SMALL.items()}


def _own_tags(source: str) -> str:
    return source if "endgeneration" in source else ""


@cache
def _encoder(model: Model) -> tuple[Vocabulary, Encoder]:
    with TemporaryDirectory() as folder:
        oracle.of(model).save_pretrained(folder)
        vocabulary = load_vocabulary(folder)
    return vocabulary, Encoder(vocabulary, choose_engine(vocabulary), MaskPolicy())


def cell(entry: Entry, kind: Kind) -> Cell:
    """Render and tokenize a chat as a build does, and hold it against the reference."""
    expected = oracle.reference(entry.source, entry.model, kind)
    vocabulary, encoder = _encoder(entry.model)
    template = ChatTemplate(entry.name, entry.source, vocabulary.special, {}, tuple(sorted(vocabulary.control)), entry.model.image)
    try:
        rendered = render(kind.sample, template)
        check_stops(encoder.policy, rendered)
        encoded = encoder.encode([rendered])
        for _, refusal in encoded.refused:
            raise refusal
    except Refused as refusal:
        return Cell(refusal.reason, _unfounded(refusal, entry, expected))
    if expected is None:
        return Cell(fault=f"kept, though the template does not show all of it: {rendered.text[-300:]!r}")
    if encoded.ids.tolist() != expected.ids:
        return Cell(fault=f"ids of {rendered.text[-300:]!r}, transformers renders {expected.text[-300:]!r}")
    mask = (encoded.loss != 0).astype(int).tolist()
    if mask != expected.mask:
        shown = [_shown(vocabulary, expected.ids, each) for each in (mask, expected.mask)]
        return Cell(fault=f"trains {shown[0]!r}, the format says {shown[1]!r}")
    try:
        derived = derive(kind.sample, MaskOptions(), template, rendered=rendered.text)
    except CheckFailed as fault:
        return Cell(fault=f"the second derivation proves nothing: {fault}")
    differs = disagreement(derived, rendered.text, trained(rendered, encoder.policy))
    if differs is not None:
        return Cell(fault=f"the second derivation differs: {differs}")
    tags = oracle.tagged(entry.tagged, entry.model, kind, expected) if entry.tagged else None
    parted = oracle.disagreement(entry.model, expected, tags) if tags is not None else ""
    return Cell(fault=f"the generation tags differ by {parted!r}" if parted else "", has_tags=tags is not None)


def _shown(vocabulary: Vocabulary, ids: list[int], mask: list[int]) -> str:
    """What is trained, dots for what is not."""
    return "".join(vocabulary.decode([token]) if trained else "·" for token, trained in zip(ids, mask, strict=True)).strip("·")


def _unfounded(refusal: Refused, entry: Entry, expected: oracle.Reference | None) -> str:
    """Why a refusal does not hold, ``""`` where it does."""
    if expected is None:
        return (
            "" if refusal.reason in ALWAYS_RIGHT else f"refused for another reason than that the template leaves something out: {refusal}"
        )
    if refusal.reason == "no_stop_token":
        stopped = any(
            expected.text.rstrip().endswith(token) for token in (*entry.model.control, entry.model.eos) if token and token[:2] != "</"
        )
        return f"{refusal}, yet it ends {expected.text[-40:]!r}" if stopped else ""
    if refusal.reason == "generation_prompt_not_found":
        answers = sum(message["role"] == "assistant" for message in expected.messages)
        found = sum(1 for _ in entry.model.generated.finditer(expected.text))
        return "" if found < answers else f"{refusal}, yet each of {answers} answers has its header"
    return f"{refusal}, though the template shows all of it"
