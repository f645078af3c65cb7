"""A source record alone → the sequences of tokens that stores must hold of it, made once more by the way of its asset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.alone import Heard
from prep_assets.assets.pretrain_tokens import fill_in_the_middle
from prep_assets.assets.reading.examples import Item, converter
from prep_assets.assets.reading.pinned import domain_of
from prep_assets.assets.reading.reasoning import inline_reasoning, unrendered_reasoning
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.contrast_rows import contrast_row
from prep_assets.assets.writing.conversations import conversations_of
from prep_assets.assets.writing.groups import Tokenize
from prep_assets.assets.writing.image_parts import ImageParts
from prep_assets.assets.writing.masked_documents import POLICY, MaskedDocuments, untemplated
from prep_assets.assets.writing.message_rows import form_of
from prep_assets.assets.writing.pairs import SIDES, pair_renderer, rendered_pair
from prep_assets.assets.writing.preference_rows import preference_row
from prep_assets.assets.writing.prompts import generation_prompt, prompt_encoder, prompt_of, prompt_row
from prep_assets.config.models import Contrastive, Preference, Pretrain, Rl, Sft
from prep_assets.errors import Refused
from prep_assets.lineage.sequence import Sequence, rendered_sequence, spelled
from prep_assets.lineage.why import Why
from prep_assets.records.files import SourceFile, record_id
from prep_assets.samples import ASSISTANT, DOCUMENT, TEXT, USER, Contrast, Group, Pair, Prompt, Record, Sample
from prep_assets.schemas.reader import apply
from prep_assets.tokenization.cuts import characters
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.ends import ends_of
from prep_assets.tokenization.fill_in_the_middle import Cut, cut_of
from prep_assets.tokenization.sentences import Sentences, sentences_of
from prep_assets.tokenization.vocabulary import Vocabulary

Derive = Callable[[SourceFile, Record], list[Sequence]]
"""The sequences of a record, in the order in which its store has them. Raises `Refused` where the asset refuses the record."""


def conversations(workspace: Workspace, name: str) -> Derive:
    """One sequence for each record of `sft_tokens` that a row became."""
    domain = domain_of(workspace.family(Sft), name)
    convert, found = converter(domain, Sample), conversations_of(workspace, domain, Heard())

    def derive(file: SourceFile, record: Record) -> list[Sequence]:
        sample = apply(convert, record.payload)
        if isinstance(sample, Sample) and sample.tokenized is not None:
            [_], encoded = found.encode([Item(file, record, sample)])
            loss = encoded.loss
            return [spelled(found.encoder.vocabulary, encoded.ids, loss, lambda token: _brought(float(loss[token])))]
        _, rendered, _ = found.examples([Item(file, record, sample)])
        return [rendered_sequence(found.encoder, each) for each in rendered]

    return derive


def _brought(weight: float) -> Why:
    return Why(weight != 0, "brought", f"the row brings this token with the loss weight {weight:g}")


def documents(workspace: Workspace, name: str) -> Derive:
    """The one sequence of a document."""
    family = workspace.family(Pretrain)
    domain, vocabulary = domain_of(family, name), workspace.vocabulary(family)
    convert, encoder = converter(domain, Sample), Encoder(vocabulary, workspace.engines(family), POLICY, trains=False)
    rendering = MaskedDocuments(untemplated(workspace, family), ImageParts.of_domain(workspace, family, domain), family)
    sentences = sentences_of(family.split_sentences)
    ends, fim = ends_of(vocabulary, family.bos, family.append_eod), family.preprocessing.fim

    def around(begins: bool) -> Why:
        if begins:
            return Why(True, "begin", "the begin-of-text token, which is trained like the document", "bos")
        return Why(True, "end", "the end-of-text token, which weighs what the end of the document weighs")

    def derive(file: SourceFile, record: Record) -> list[Sequence]:
        item = Item(file, record, apply(convert, record.payload))
        [rendered] = rendering.render([item], Heard())[1]
        identity = f"{name}/{record_id(file, record.row)}"
        cut = cut_of(identity, len(rendered.text), rate=fim.rate, spm_rate=fim.spm_rate, seed=fim.seed) if fim.rate else None
        if sentences is not None:
            text = _in_sentences(workspace, family, rendered.text, sentences)
        else:
            text = rendered_sequence(encoder, rendered) if cut is None else _cut(workspace, family, rendered.text, cut)
        before, after = (() if each is None else (each,) for each in (ends.bos, ends.eos))
        return [text.between(before, after, rendering.ending(item.example), around)]

    return derive


def _parts(workspace: Workspace, family: Pretrain, parts: Iterable[str]) -> list[tuple[npt.NDArray[np.int64], ...]]:
    """Ids of parts of a text that are tokenized each for itself, and the first and last character of the text that each token stands for."""
    lengths, engine = workspace.vocabulary(family).byte_lengths, workspace.engines(family).rest
    assert lengths is not None  # no other tokenizer's documents are cut
    found: list[tuple[npt.NDArray[np.int64], ...]] = []
    start = 0
    for part in parts:
        tokens = engine.encode([part]).ids.astype(np.int64)
        until = np.cumsum(lengths[tokens])
        first, last = characters(part, until - lengths[tokens], until)
        found.append((tokens, first + start, last + start))
        start += len(part)
    return found


def _in_sentences(workspace: Workspace, family: Pretrain, text: str, sentences: Sentences) -> Sequence:
    """The sentences of a document, end to end."""
    ids, starts, ends = map(np.concatenate, zip(*_parts(workspace, family, sentences.cut(text)), strict=True))
    return Sequence(text, ids, np.ones(len(ids), np.float32), starts, ends, lambda token: _whole(text))


def _whole(text: str) -> Why:
    where: dict[str, Any] = {"turn": 0, "role": DOCUMENT, "kind": TEXT, "region": (0, len(text)), "content": text}
    return Why(True, "content", "the whole document is trained", **where)


def _cut(workspace: Workspace, family: Pretrain, text: str, cut: Cut) -> Sequence:
    """The three parts of a document, each after its sentinel."""
    fim = fill_in_the_middle(workspace, family)
    assert fim is not None
    head, body, tail = _parts(workspace, family, cut.parts(text))
    prefix, suffix, middle = (
        (np.array([one]), np.array([at]), np.array([at]))
        for one, at in ((fim.sentinels.prefix, 0), (fim.sentinels.suffix, cut.end), (fim.sentinels.middle, cut.start))
    )
    order = [prefix, suffix, tail, middle, head, body] if cut.suffix_first else [prefix, head, suffix, tail, middle, body]
    ids, starts, ends = (np.concatenate([each[i] for each in order]) for i in range(3))
    sentinels = np.cumsum([0, *(len(each[0]) for each in order)])[
        [i for i, each in enumerate(order) if any(each is one for one in (prefix, suffix, middle))]
    ]

    def why(token: int) -> Why:
        if token in sentinels:
            return Why(True, "sentinel", "a sentinel of fill-in-the-middle, trained like the document", "preprocessing.fim")
        return _whole(text)

    return Sequence(text, ids, np.ones(len(ids), np.float32), starts, ends, why)


def pairs(workspace: Workspace, name: str, store: Path) -> Callable[[Record], Mapping[str, Any]]:
    """Record → its line in ``preferences.jsonl`` or one of its neighbours, in the form that the store has."""
    family = workspace.family(Preference)
    convert, reasoning = converter(domain_of(family, name), Pair), unrendered_reasoning(family)
    form = form_of(store)
    return lambda record: _as_json(preference_row(reasoning.read(apply(convert, record.payload)), form))


def prompts(workspace: Workspace, name: str, store: Path) -> Callable[[Record], Mapping[str, Any]]:
    """Record → its line in ``rl_prompts_train.jsonl`` or its neighbour, in the form that the store has."""
    family = workspace.family(Rl)
    convert, reasoning = converter(domain_of(family, name), Prompt), unrendered_reasoning(family)
    form = form_of(store)
    return lambda record: _as_json(prompt_row(prompt_of(reasoning.read(apply(convert, record.payload))), form))


def contrasts(workspace: Workspace, name: str) -> Callable[[Record], Mapping[str, Any]]:
    """Record → its line in ``contrastive.jsonl`` or its neighbour."""
    convert = converter(domain_of(workspace.family(Contrastive), name), Contrast)
    return lambda record: _as_json(contrast_row(apply(convert, record.payload)))


def pair_sequence(workspace: Workspace, line: Mapping[str, Any], side: str) -> Sequence:
    """One side of a pair."""
    family = workspace.family(Preference)
    renderer = pair_renderer(workspace)
    rendered = rendered_pair(dict(line), renderer, inline_reasoning(workspace, family))
    return rendered_sequence(renderer.encoder, rendered[SIDES.index(side.rpartition("/")[2])], binary=True)


def prompt_sequence(workspace: Workspace, line: Mapping[str, Any]) -> Sequence:
    """A prompt, up to where a model continues."""
    family = workspace.family(Rl)
    rendered = generation_prompt(workspace.template(family), inline_reasoning(workspace, family), dict(line))
    found = rendered_sequence(prompt_encoder(workspace), rendered)
    return replace(
        found,
        why=lambda token: replace(found.why(token), because="a prompt is given to the model, and nothing of it is trained", option=""),
    )


def groups(workspace: Workspace, name: str) -> Derive:
    """The sequence of a group's prompt, then those of its responses."""
    family = workspace.family(Rl)
    vocabulary = workspace.vocabulary(family)
    convert, tokenize = converter(domain_of(family, name), Group), Tokenize(workspace, name)
    sampled = Why(True, "sampled", "a token that a model sampled; all of them are trained", "", None, ASSISTANT)
    given = Why(False, "sampled", "a token of the prompt as the source has it; prompts are not trained", "", None, USER)

    def derive(file: SourceFile, record: Record) -> list[Sequence]:
        found = tokenize.renders(Item(file, record, apply(convert, record.payload)))
        if isinstance(found, Refused):
            raise found
        prompt = None if found.prompt is None else rendered_sequence(tokenize.prompts, found.prompt)
        if found.group.sampled is None:
            assert prompt is not None
            return [prompt, *(rendered_sequence(tokenize.whole, each, binary=True).part(len(prompt)) for each in found.whole)]
        own, responses = found.group.sampled.prompt, found.group.sampled.responses
        head = prompt or _spelled(vocabulary, own or (), given)
        return [head, *(_spelled(vocabulary, ids, sampled) for ids in responses)]

    return derive


def _spelled(vocabulary: Vocabulary, ids: tuple[int, ...], why: Why) -> Sequence:
    return spelled(vocabulary, ids, np.full(len(ids), why.trained, np.float32), lambda token: why)


def _as_json(row: Mapping[str, Any]) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = json.loads(json.dumps(row))
    return loaded
