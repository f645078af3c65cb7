"""`trace`: follow a row of a store back to its source rows, and derive its tokens from them again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from prep_assets.array_types import Float32s, Ints
from prep_assets.checks.selection import RaisingQuarantine
from prep_assets.config.mask import MaskPolicy
from prep_assets.config.models import Pretrain, Sft
from prep_assets.data.addresses import file_name
from prep_assets.data.blocks import Unreadable
from prep_assets.data.files import SourceFile, record_id
from prep_assets.errors import ConfigError, Refused, StoreError, require_number
from prep_assets.extensions.explain.streams import (
    DRAFT,
    Opened,
    Origin,
    Piece,
    Place,
    Row,
    files_of,
    nth_row,
    read_row,
    read_rows,
    source_files,
    stream_of,
)
from prep_assets.extensions.lines.write import form_of
from prep_assets.graph.graph import EVERY, family_of, holds, one_partition
from prep_assets.graph.pretrain import fill_in_the_middle
from prep_assets.pipeline.asset import FromLines, FromRows, Generated, Given, LineEncoder
from prep_assets.pipeline.conversations import conversations_of
from prep_assets.pipeline.documents import POLICY, MaskedDocuments
from prep_assets.pipeline.examples import Item, converter
from prep_assets.pipeline.sources import domain_of, read_sources
from prep_assets.pipeline.tokens import BY_DOMAIN
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import DOCUMENT, MEDIA, TEXT, Record, Sample
from prep_assets.schemas.reader import apply
from prep_assets.stores.manifest import label_of
from prep_assets.stores.table import TOKENS
from prep_assets.text.documents import Cut, cut_of, sentences_of
from prep_assets.text.encode import Encoder
from prep_assets.text.spans import Rendered, Span, characters
from prep_assets.text.visible import token_texts
from prep_assets.text.vocabulary import Vocabulary, ends_of

# Why a token is trained or not: the part of the render that it belongs to, and the option or weight that decided.

Part = Literal["content", "stop", "template", "begin", "end", "sentinel", "sampled", "brought", "padding", "image"]
"""What a token belongs to: text of the source; the stop of a turn; the template; the begin or end of a document; a fill-in-the-middle sentinel; ids that a
model sampled (``sampled``) or that the source row gives (``brought``); padding; an image."""


@dataclass(frozen=True, slots=True)
class Why:
    """Why a token is trained or not.

    Attributes:
        trained: whether it is trained.
        part: what it belongs to.
        because: the reason, in a sentence.
        option: the family's option that decided, e.g. ``mask.user``; empty where the data or the code did.
        turn, role, kind: number and role of its turn, and kind of its region; `None` where it has none.
        region: characters (start, end) of that region in the text.
        content: the region's text, as the source has it.
    """

    trained: bool
    part: Part
    because: str
    option: str = ""
    turn: int | None = None
    role: str | None = None
    kind: str | None = None
    region: tuple[int, int] | None = None
    content: str | None = None


PADDING = Why(False, "padding", "it fills the row; padding is never trained")


def why_in_render(rendered: Rendered, policy: MaskPolicy, span: tuple[int, int], weight: float, *, replaced: bool = False) -> Why:
    """Explain the loss weight of a token of a render.

    Args:
        span: characters (start, end) of the token.
        weight: its loss weight, below 0 where it is not attended.
        replaced: whether truncation wrote it over another token.
    """
    if replaced:
        return Why(
            weight != 0,
            "stop",
            "the answer is cut off here, and its last token is replaced by the one that stops it",
            "truncation_keeps_stop",
        )
    start, end = span
    # a trained token that starts with white space before an answer belongs to the answer
    for place in (start, max(end - 1, start)):
        why = _why_at(rendered, policy, place)
        if why.trained == (weight > 0):
            return why
    return _why_at(rendered, policy, start)


def _why_at(rendered: Rendered, policy: MaskPolicy, place: int) -> Why:
    weights = policy.weights(rendered.spans)
    for number, span in enumerate(rendered.spans):
        if span.start <= place < span.end:
            before = [policy.weight(each.role, each.region) for each in rendered.spans]
            left_out = policy.left_out(rendered.spans, before).get(span.turn, "") if before[number] else ""
            return _why_content(span, weights[number], policy, left_out)
    stops = policy.stop_weights(rendered.spans, weights)
    for stop in rendered.stops:
        # white space between the words and the stop token is generated with them
        last = max(span.end for span in rendered.spans if span.turn == stop.turn)
        if stop.start <= place < stop.end or (stops.get(stop.turn) and last <= place < stop.end):
            return _why_stop(rendered, stop.turn, stops.get(stop.turn, 0.0), policy)
    return _why_template(rendered, place, weights, policy)


def _why_content(span: Span, weight: float, policy: MaskPolicy, left_out: str) -> Why:
    region, role = span.region, span.role
    location: dict[str, Any] = {
        "turn": span.turn,
        "role": role,
        "kind": region.kind,
        "region": (span.start, span.end),
        "content": region.text,
    }
    if region.kind in MEDIA:
        return Why(False, "image", "it stands for a file; placeholders are never trained", **location)
    because, option = policy.reason(span, left_out)
    return Why(weight > 0, "content", because, option, **location)


def _why_stop(rendered: Rendered, turn: int, weight: float, policy: MaskPolicy) -> Why:
    last = [span for span in rendered.spans if span.turn == turn][-1]
    return Why(weight != 0, "stop", *policy.reason_of_stop(turn, weight), turn, last.role)


def _why_template(rendered: Rendered, place: int, weights: list[float], policy: MaskPolicy) -> Why:
    """Template text: the header of the next turn, or what follows the last one."""
    for number, (previous, span) in enumerate(pairwise([None, *rendered.spans])):
        if span is None or span.start <= place:
            continue
        starts_turn = previous is None or previous.turn != span.turn
        if not starts_turn:
            break
        if weights[number] <= 0:
            return Why(False, "template", f"the template writes it before turn {span.turn}, which is not trained", "", span.turn, span.role)
        end = max(
            (stop.end for stop in rendered.stops if previous is not None and stop.turn == previous.turn),
            default=previous.end if previous else 0,
        )
        trained = policy.train_headers and place >= end
        return Why(trained, "template", *policy.reason_of_header(span.turn), span.turn, span.role)
    return Why(False, "template", "the template writes it between or after the turns; no option trains it")


# Sequences of tokens derived from source records, with the characters of each token and why it is trained.


@dataclass(frozen=True, slots=True, eq=False)
class TokenSequence:
    """One record of a token store.

    Attributes:
        text: the render, or what sampled ids decode to.
        ids, loss: int64[T], float32[T]: what the store must hold; weights below 0 where a token is not attended.
        starts, ends: int64[T], the characters of `text` by token; empty spans for tokens around the text.
        why: index of a token → why it is trained or not.
    """

    text: str
    ids: Ints
    loss: Float32s
    starts: Ints
    ends: Ints
    why: Callable[[int], Why]

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, first: int) -> TokenSequence:
        """The sequence from token `first` on."""
        rest = slice(first, None)
        return TokenSequence(
            self.text, self.ids[rest], self.loss[rest], self.starts[rest], self.ends[rest], lambda token: self.why(token + first)
        )

    def between(self, before: tuple[int, ...], after: tuple[int, ...], weight_after: float, why: Callable[[bool], Why]) -> TokenSequence:
        """The sequence with ids added before and after its text.

        Args:
            weight_after: loss weight of the ids after it; ids before it weigh 1.
            why: whether an added token is before the text → why it is trained or not.
        """
        low, high, around = len(before), len(before) + len(self), (len(before), len(after))
        ids, loss = np.concatenate([before, self.ids, after]).astype(np.int64), np.pad(self.loss, around, constant_values=(1, weight_after))
        starts, ends = (np.pad(places, around, constant_values=(0, len(self.text))) for places in (self.starts, self.ends))
        return TokenSequence(
            self.text, ids, loss, starts, ends, lambda token: self.why(token - low) if low <= token < high else why(token < low)
        )


def rendered_sequence(encoder: Encoder, rendered: Rendered, *, binary: bool = False) -> TokenSequence:
    """The tokens of a render.

    Args:
        binary: whether the store's mask holds only 0 and 1.

    Raises:
        Refused: the encoder rejects it.
    """
    places = encoder.places(rendered)
    loss = (places.loss > 0).astype(np.float32) if binary else places.loss

    def why(token: int) -> Why:
        span = int(places.starts[token]), int(places.ends[token])
        return why_in_render(rendered, encoder.policy, span, float(places.loss[token]), replaced=bool(places.replaced[token]))

    return TokenSequence(rendered.text, places.ids.astype(np.int64), loss, places.starts, places.ends, why)


def spelled(vocabulary: Vocabulary, ids: Any, loss: Float32s, why: Callable[[int], Why]) -> TokenSequence:
    """A sequence of given ids, with the text that they decode to one by one."""
    texts = [vocabulary.decode([int(token)]) for token in ids]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), ends])[: len(ends)]
    return TokenSequence("".join(texts), np.asarray(ids, np.int64), loss, starts, ends, why)


Derive = Callable[[SourceFile, Record], list[TokenSequence]]
"""Returns the sequences of a record, in the order of its store. Raises `Refused` where the asset rejects the record."""


def conversations(workspace: Workspace, name: str) -> Derive:
    """Derive the records of `sft_tokens` that a row becomes."""
    domain = domain_of(workspace.family(Sft), name)
    convert, chats = converter(domain, Sample), conversations_of(workspace, domain, RaisingQuarantine())

    def derive(file: SourceFile, record: Record) -> list[TokenSequence]:
        sample = apply(convert, record.payload)
        if isinstance(sample, Sample) and sample.tokenized is not None:
            [_], encoded = chats.encode([Item(file, record, sample)])
            loss = encoded.loss
            return [spelled(chats.encoder.vocabulary, encoded.ids, loss, lambda token: _why_given(float(loss[token])))]
        _, renders, _ = chats.examples([Item(file, record, sample)])
        return [rendered_sequence(chats.encoder, render) for render in renders]

    return derive


def _why_given(weight: float) -> Why:
    return Why(weight != 0, "brought", f"the row brings this token with the loss weight {weight:g}")


def documents(workspace: Workspace, name: str) -> Derive:
    """Derive the one sequence of a document."""
    family = workspace.family(Pretrain)
    domain, vocabulary = domain_of(family, name), workspace.vocabulary(family)
    convert, encoder = converter(domain, Sample), Encoder(vocabulary, workspace.engines(family), POLICY, trains=False)
    rendering = MaskedDocuments(workspace, family, domain)
    sentences = sentences_of(family.split_sentences)
    ends, fim = ends_of(vocabulary, family.bos, family.append_eod), family.preprocessing.fim

    def around(begins: bool) -> Why:
        if begins:
            return Why(True, "begin", "the begin-of-text token, which is trained like the document", "bos")
        return Why(True, "end", "the end-of-text token, which weighs what the end of the document weighs")

    def derive(file: SourceFile, record: Record) -> list[TokenSequence]:
        item = Item(file, record, apply(convert, record.payload))
        [rendered] = rendering.render([item], RaisingQuarantine())[1]
        identity = f"{name}/{record_id(file, record.row)}"
        cut = cut_of(identity, len(rendered.text), rate=fim.rate, spm_rate=fim.spm_rate, seed=fim.seed) if fim.rate else None
        if sentences is not None:
            text = _in_parts(workspace, family, rendered.text, sentences.cut(rendered.text))
        elif cut is not None:
            text = _in_parts(workspace, family, rendered.text, _around_a_gap(workspace, family, rendered.text, cut))
        else:
            text = rendered_sequence(encoder, rendered)
        before, after = (() if token is None else (token,) for token in (ends.bos, ends.eos))
        return [text.between(before, after, rendering.ending(item.example), around)]

    return derive


def _around_a_gap(workspace: Workspace, family: Pretrain, text: str, cut: Cut) -> list[str | tuple[int, int]]:
    """The parts of a document for fill-in-the-middle, in token order, with their sentinels."""
    fim = fill_in_the_middle(workspace, family)
    assert fim is not None
    head, body, tail = cut.parts(text)
    prefix, suffix, middle = (fim.sentinels.prefix, 0), (fim.sentinels.suffix, cut.end), (fim.sentinels.middle, cut.start)
    return [prefix, suffix, tail, middle, head, body] if cut.suffix_first else [prefix, head, suffix, tail, middle, body]


def _in_parts(workspace: Workspace, family: Pretrain, text: str, parts: Iterable[str | tuple[int, int]]) -> TokenSequence:
    """A document whose parts are tokenized one by one.

    Args:
        parts: in token order: a stretch of the text; or a sentinel id with the character at which the next stretch starts.
    """
    lengths, engine = workspace.vocabulary(family).byte_lengths, workspace.engines(family).rest
    assert lengths is not None  # only documents of byte-level tokenizers are cut
    columns: list[tuple[Ints, Ints, Ints]] = []
    sentinels, count, start = set[int](), 0, 0
    for part in parts:
        if isinstance(part, tuple):
            sentinel, start = part
            sentinels.add(count)
            columns.append((np.array([sentinel]), np.array([start]), np.array([start])))
        else:
            tokens = engine.encode([part]).ids.astype(np.int64)
            until = np.cumsum(lengths[tokens])
            first, last = characters(part, until - lengths[tokens], until)
            columns.append((tokens, first + start, last + start))
            start += len(part)
        count += len(columns[-1][0])
    ids, starts, ends = map(np.concatenate, zip(*columns, strict=True))
    whole = Why(True, "content", "the whole document is trained", "", 0, DOCUMENT, TEXT, (0, len(text)), text)
    sentinel_why = Why(True, "sentinel", "a sentinel of fill-in-the-middle, trained like the document", "preprocessing.fim")
    return TokenSequence(
        text, ids, np.ones(len(ids), np.float32), starts, ends, lambda token: sentinel_why if token in sentinels else whole
    )


def line_maker(workspace: Workspace, asset: str, name: str, store: Path) -> Callable[[Record], Sequence[Mapping[str, Any]]]:
    """Return a function from a record to its JSONL line, or its lines, in the form of the store."""
    source, form = EVERY[asset].source, form_of(store)
    assert isinstance(source, FromRows) and source.line is not None
    convert, make = converter(domain_of(family_of(workspace, asset), name), source.gives), source.line(workspace)

    def lines(record: Record) -> Sequence[Mapping[str, Any]]:
        made = make(apply(convert, record.payload))[1](form)
        return [*map(_as_json, made if isinstance(made, list) else [made])]

    return lines


def line_sequence(encoder: LineEncoder, line: Mapping[str, Any], stream: str) -> TokenSequence:
    """The tokens of a line in a stream."""
    tokenizes, rendered = encoder.rendered(line, stream)
    sequence = rendered_sequence(tokenizes, rendered, binary=True)
    if tokenizes.trains:
        return sequence
    because = "a prompt is given to the model, and nothing of it is trained"
    return replace(sequence, why=lambda token: replace(sequence.why(token), because=because, option=""))


def of_items(asset: str, workspace: Workspace, name: str) -> Derive:
    """Derive the sequences of a row by what its asset says of them."""
    source, family = EVERY[asset].source, family_of(workspace, asset)
    assert isinstance(source, FromRows) and source.sequences is not None
    vocabulary, convert, of = (
        workspace.vocabulary(family),
        converter(domain_of(family, name), source.gives),
        source.sequences(workspace, name),
    )

    def derive(file: SourceFile, record: Record) -> list[TokenSequence]:
        found = list[TokenSequence]()
        for each in of(Item(file, record, apply(convert, record.payload))):
            if isinstance(each, Given):
                found.append(
                    _spelled(vocabulary, each.ids, [Why(is_trained, "sampled", why, "", None, role) for is_trained, why, role in each.whys])
                )
            else:
                sequence = rendered_sequence(each.encoder, each.rendered, binary=True)
                found.append(sequence.part(len(found[0])) if each.continues else sequence)
        return found

    return derive


def _spelled(vocabulary: Vocabulary, ids: Sequence[int], whys: Sequence[Why]) -> TokenSequence:
    return spelled(vocabulary, ids, np.array([why.trained for why in whys], np.float32), lambda token: whys[token])


def _as_json(row: Mapping[str, Any]) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = json.loads(json.dumps(row))
    return loaded


# `trace`: any row of a store → its source rows, token by token.
#
# Origins come from the indexes of the stores. Every record is then read from its source again and tokenized on its own, so a trace reports what the
# source gives, and names the tokens that differ.


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of a source.

    Attributes:
        domain, id: ``gsm8k`` and ``gsm8k.jsonl:17``.
        file, url, sha256: the file's name within the domain, its address, and the hash of its bytes.
        row: number of the row in the file, from 1, as in `id`.
        held_out: whether the file is one of the domain's `test_files`.
        payload: the row; its raw text where it cannot be parsed.
    """

    domain: str
    id: str
    file: str
    url: str
    sha256: str
    row: int
    held_out: bool
    payload: Mapping[str, Any] | str


class Traced(Struct, frozen=True, eq=False):
    """A piece of a row, with its source.

    Attributes:
        piece: its tokens, and its path to the source.
        source: the source row; `None` where the record was generated.
        line: the line of the JSONL store on the path, where there is one.
        sequence: the tokens derived from the source; `None` for a line.
        differs: indices of tokens in the row whose id or weight is not what the source gives.
    """

    piece: Piece
    source: SourceRow | None
    line: Mapping[str, Any] | None
    sequence: TokenSequence | None
    differs: tuple[int, ...]


class Trace(Struct, frozen=True, eq=False):
    """A row of a store, traced.

    Attributes:
        row: the row as it is stored.
        pieces: the stretches that it is made of.
        hashes: label of a store on the path → build key, content, tokenizer and template.
        made_with: the workspace that the store was built with; for a draft, with the options of its run.
    """

    row: Row
    pieces: tuple[Traced, ...]
    hashes: Mapping[str, Mapping[str, Any]]
    made_with: Workspace

    @property
    def differs(self) -> tuple[int, ...]:
        """Indices of tokens that are not what their sources give."""
        return tuple(place for traced in self.pieces for place in traced.differs)

    def hashes_of(self, traced: Traced) -> Mapping[str, Mapping[str, Any]]:
        """`hashes` of the stores on the path of one piece."""
        labels = [label_of(*store) for store in _stores(traced.piece)]
        return {label: hashes for label, hashes in self.hashes.items() if label.removesuffix(DRAFT) in labels}


def trace(
    workspace: Workspace, asset: str, row: int, *, partition: str | None = None, stream: str | None = None, draft: bool = False
) -> Trace:
    """Trace one row.

    Args:
        row: row, record, line or group, counted from 0; of a raw asset over all its files.
        partition: a domain, for an asset that has one store for each.
        stream: which stream, table or file of the store, where it has several.
        draft: trace the draft instead of the current store.

    Raises:
        ConfigError: no such asset, partition, stream or row; or an asset that has no rows.
        StoreError: the store is missing, or out of date.
        SourceError: a source changed since it was read.
    """
    tracer = Tracer(workspace, _store_named(workspace, asset, partition) if draft else None)
    place = tracer.place(asset, row, partition, stream)
    return tracer.trace([place])[0]


def _store_named(workspace: Workspace, asset: str, partition: str | None) -> tuple[str, str]:
    definition, key = one_partition(workspace, asset, partition)
    return definition.name, key


class Tracer:
    """Traces many rows of a workspace; a store is opened once, and a source file is read once per call of `trace`.

    Args:
        draft: asset and partition of a store whose draft is traced.
    """

    def __init__(self, workspace: Workspace, draft: tuple[str, str] | None = None) -> None:
        self.opened = Opened(workspace, draft)
        self.workspace = self.opened.workspace
        self._sequences = cache(self._sequence_maker)
        self._lines = cache(self._line_maker)

    def place(self, asset: str, row: int, partition: str | None, stream: str | None) -> Place:
        """Look up a row by asset, partition and stream.

        Raises:
            ConfigError, StoreError: as `trace`.
        """
        store = _store_named(self.workspace, asset, partition)
        return Place(*store, stream_of(self.opened.published(*store), stream), row)

    def trace(self, places: Sequence[Place]) -> list[Trace]:
        """Trace rows, in the order given."""
        rows = [self.row(place) for place in places]
        wanted: dict[tuple[str, str], set[tuple[int, int]]] = {}
        for origin in (piece.origin for row in rows for piece in row.pieces if piece.origin):
            wanted.setdefault((origin.raw, origin.domain), set()).add((origin.file, origin.row))
        records = {
            Origin(*domain, *number): record
            for domain, numbers in wanted.items()
            for number, record in read_rows(self.workspace, *domain, numbers).items()
        }
        files = {domain: files_of(self.workspace, *domain) for domain in wanted}
        sources = {
            source_row: (files[source_row.raw, source_row.domain][source_row.file], record) for source_row, record in records.items()
        }
        traces = []
        for row in rows:
            pieces = tuple(self._piece(row, piece, *sources[piece.origin] if piece.origin else (None, None)) for piece in row.pieces)
            stores = dict.fromkeys([(row.place.asset, row.place.partition), *(store for piece in row.pieces for store in _stores(piece))])
            hashes = {self.opened.label(*store): self.opened.hashes(*store) for store in stores}
            traces.append(Trace(row, pieces, hashes, self.opened.made_with(row.place.asset, row.place.partition)))
        return traces

    def row(self, place: Place) -> Row:
        """A row as it is stored, with its pieces."""
        if place.asset.endswith("_raw"):
            origin, count = nth_row(self.workspace, place.asset, place.partition, place.row)
            return Row(place, count, np.zeros(0, np.int64), None, (Piece(0, 0, 0, 0, (place,), origin),))
        return read_row(self.opened, place)

    def _piece(self, row: Row, piece: Piece, file: SourceFile | None, record: Record | Unreadable | None) -> Traced:
        origin, source, asset = piece.origin, None, piece.path[0].asset
        if origin is not None and file is not None and record is not None:
            raw = self.opened.published(origin.raw, origin.domain)
            sha256, held_out = source_files(raw)[origin.file]["sha256"], origin.file >= len(read_sources(raw)["files"])
            location = file.name, file_name(file.url), sha256, origin.row + 1, held_out
            source = SourceRow(origin.domain, record_id(file, origin.row), *location, record.payload)
        if piece.path[-1].asset.endswith("_raw"):
            return Traced(piece, source, None, None, ())
        try:
            line, sequence = self._derived(piece, file, record)
        except Refused as rejection:
            raise StoreError(
                f"{asset} holds {source.id if source else 'a record'}, which its source no longer gives: {rejection}. Verify the store:\n"
                f"  prep-assets verify {asset}"
            ) from rejection
        return Traced(piece, source, line, sequence, () if sequence is None else _differing_places(row, piece, sequence))

    def _derived(self, piece: Piece, file: SourceFile | None, record: Any) -> tuple[Mapping[str, Any] | None, TokenSequence | None]:
        """The line and the tokens that a record gives."""
        last, domain = piece.path[-1], piece.origin.domain if piece.origin else ""
        if derive := self._sequences(last.asset, domain):
            assert file is not None
            return None, derive(file, record)[piece.part]
        source = EVERY[last.asset].source
        line = (
            _generated(source, self.opened.made_with(last.asset), last)
            if isinstance(source, Generated)
            else self._line(last, domain, record)
        )
        # the store in which the line was tokenized: the last token store on the path
        tokens = next((place for place in reversed(piece.path) if holds(place.asset, TOKENS)), None)
        if len(piece.path) == 1 or tokens is None:
            return line, None
        made = EVERY[tokens.asset].source
        assert isinstance(made, FromLines)
        return line, line_sequence(made.encoder(self.opened.made_with(tokens.asset, tokens.partition)), line, tokens.stream)

    def _line(self, place: Place, domain: str, record: Record) -> Mapping[str, Any]:
        """The line that a record gives; of several, the one with the number of the stored one among those of its row."""
        lines = self._lines(place.asset, domain)(record)
        if len(lines) == 1:
            return lines[0]
        origins = self.opened.stream(place.asset, place.partition, place.stream).origins
        return lines[origins.records(*origins.of(place.row)).index(place.row)]

    def _sequence_maker(self, asset: str, domain: str) -> Derive | None:
        derive = _derives(asset)
        return None if derive is None else derive(self.opened.made_with(asset, domain), domain)

    def _line_maker(self, asset: str, domain: str) -> Callable[[Record], Sequence[Mapping[str, Any]]]:
        return line_maker(self.opened.made_with(asset, domain), asset, domain, self.opened.published(asset, domain).directory)


def _stores(piece: Piece) -> list[tuple[str, str]]:
    """The stores on the way from a row to its source."""
    stores = [(place.asset, place.partition) for place in piece.path]
    return stores if piece.origin is None else [*stores, (piece.origin.raw, piece.origin.domain)]


_SEQUENCES: Mapping[str, Callable[[Workspace, str], Derive]] = {
    "sft_tokens": conversations,
    "pretrain_tokens": documents,
}


def _derives(asset: str) -> Callable[[Workspace, str], Derive] | None:
    """What derives the sequences of a row of an asset; `None` for one of lines, or made of lines."""
    source = EVERY[asset].source if asset in EVERY else None
    if isinstance(source, FromRows) and source.sequences is not None:
        return partial(of_items, asset)
    return _SEQUENCES.get(asset)


def _generated(source: Generated, workspace: Workspace, place: Place) -> Mapping[str, Any]:
    """The prompt of a generated line."""
    if (line := next(islice(source.lines(workspace), place.row, None), None)) is None:
        raise StoreError(f"{place.asset} has a line {place.row:,}, and fewer are generated. Build it again")
    return {"prompt": line["prompt"]}


def _differing_places(row: Row, piece: Piece, sequence: TokenSequence) -> tuple[int, ...]:
    count = piece.end - piece.start
    derived = slice(piece.first, piece.first + count)
    ids, loss = sequence.ids[derived], sequence.loss[derived]
    common = min(count, len(ids))
    held = slice(piece.start, piece.start + common)
    wrong = row.ids[held] != ids[:common]
    if row.weights is not None:
        wrong = wrong | (row.weights[held] != loss[:common])
    return (*(piece.start + np.flatnonzero(wrong)).tolist(), *range(piece.start + common, piece.end))


# One token of a traced row: its text, why it is trained or not, and how a trainer uses it.

AROUND = 60
"""Characters of the render that are shown before and after a token."""


@dataclass(frozen=True, slots=True)
class Named:
    """A token id and its text."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        place: index in the row.
        token: the stored token.
        weight: its loss weight, 1 where the store has no mask; below 0 where it is not attended.
        expected: what the source gives instead, where the store is wrong.
        why: why it is trained or not.
        span: its characters (start, end) in the text of its record.
        before, text, after: those characters, with the text around them.
        within: its characters (start, end) in the region that it comes from.
        field: path of that region in the raw row, e.g. ``messages[2].content``; `None` where that is not certain.
        predicts: the label at this index after the shift by one: the next token, where that is trained.
        predicted_at: the index whose label this token is; `None` where it is not trained or is the first of the row.
    """

    place: int
    token: Named
    weight: float
    expected: Named | None
    why: Why
    span: tuple[int, int]
    before: str
    text: str
    after: str
    within: tuple[int, int] | None
    field: str | None
    predicts: Named | None
    predicted_at: int | None


def token_of(trace: Trace, place: int) -> tuple[Token, Traced | None]:
    """A token of a row, with its piece; `None` for padding.

    Raises:
        ConfigError: the row has no such token.
    """
    row = trace.row
    if not len(row.ids):
        raise ConfigError(f"{row.place.asset} holds lines and no tokens; trace a row of what is made of it: {_tokenized(row.place.asset)}")
    require_number("token", place, f"row {row.place.row:,}", len(row.ids))
    weights = _weights(trace).tolist()
    vocabulary = trace.made_with.vocabulary(family_of(trace.made_with, row.place.asset))

    def named(token: Any) -> Named:
        return Named(int(token), token_texts(vocabulary, [int(token)])[0])

    after = place + 1
    predicts = named(row.ids[after]) if after < len(row.ids) and weights[after] > 0 else None
    predicted_at = place - 1 if weights[place] > 0 and place else None
    stored = named(row.ids[place]), weights[place]
    traced = next((candidate for candidate in trace.pieces if candidate.piece.start <= place < candidate.piece.end), None)
    if traced is None or traced.sequence is None:
        return Token(place, *stored, None, PADDING, (0, 0), "", "", "", None, None, predicts, predicted_at), None
    number = traced.piece.first + place - traced.piece.start
    sequence = traced.sequence
    if number >= len(sequence):
        raise ConfigError(
            f"token {place:,}: the store holds more tokens here than the source gives. Verify it: prep-assets verify {row.place.asset}"
        )
    start, end = int(sequence.starts[number]), int(sequence.ends[number])
    why, text = sequence.why(number), sequence.text
    expected = named(sequence.ids[number]) if place in traced.differs else None
    around = text[max(0, start - AROUND) : start], text[start:end], text[end : end + AROUND]
    within = None if why.region is None else (start - why.region[0], end - why.region[0])
    field = None if traced.source is None or why.content is None else field_of(traced.source.payload, why.content)
    return Token(place, *stored, expected, why, (start, end), *around, within, field, predicts, predicted_at), traced


def _weights(trace: Trace) -> Float32s:
    """The loss weight of each token; for a stream without a mask, as derived from its sources."""
    if trace.row.weights is not None:
        return trace.row.weights
    weights = np.zeros(len(trace.row.ids), np.float32)
    for traced in trace.pieces:
        if traced.sequence is not None:
            piece = traced.piece
            loss = traced.sequence.loss[piece.first : piece.first + piece.end - piece.start]
            weights[piece.start : piece.start + len(loss)] = loss
    return weights


def _tokenized(asset: str) -> str:
    name = asset.removesuffix(BY_DOMAIN)
    token_assets = {"preferences": "preference_tokens", "rl_prompts": "rl_tokens", "arithmetic_prompts": "arithmetic_tokens"}
    return token_assets.get(name, name.replace("_raw", "_tokens")) + asset.removeprefix(name)


def field_of(payload: Any, content: str) -> str | None:
    """The path in a raw row of the one string that is, or contains, the text of a region; `None` where none or several do."""
    if not content.strip():
        return None
    strings = list(_strings(payload, ""))
    exact = [path for path, text in strings if text == content]
    matches = exact or [path for path, text in strings if content.strip() in text]
    return matches[0] if len(matches) == 1 else None


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield from _strings(child, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for number, child in enumerate(value):
            yield from _strings(child, f"{path}[{number}]")


def trace_as_json(trace: Trace) -> dict[str, Any]:
    """A traced row as JSON: its pieces in order, with their paths to the source."""
    row = trace.row
    return {
        **asdict(row.place),
        "rows": row.count,
        "tokens": len(row.ids),
        "differs": list(trace.differs),
        "pieces": [piece_as_json(traced) for traced in trace.pieces],
        "stores": {label: dict(hashes) for label, hashes in trace.hashes.items()},
    }


def piece_as_json(traced: Traced) -> dict[str, Any]:
    """A piece of a row as JSON."""
    piece = traced.piece
    return {
        "start": piece.start,
        "end": piece.end,
        "first": piece.first,
        "part": piece.part,
        "path": [asdict(place) for place in piece.path],
        "source": None if traced.source is None else asdict(traced.source),
        "line": None if traced.line is None else dict(traced.line),
        "text": None if traced.sequence is None else traced.sequence.text,
    }


def token_as_json(token: Token, traced: Traced | None) -> dict[str, Any]:
    """A token as JSON, with its piece."""
    return {**asdict(token), "piece": None if traced is None else piece_as_json(traced)}
