"""Pretraining documents: plain texts in blocks, documents with images or masks, and rows that bring their token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import Struct

from prep_assets.array_types import Float32s, Ints
from prep_assets.config.family import Domain
from prep_assets.config.mask import MaskPolicy
from prep_assets.config.models import Pretrain
from prep_assets.data.files import SourceFile, record_id
from prep_assets.data.quarantine import Quarantine, Refusal, refusal, unreadable
from prep_assets.errors import CheckFailed, ConfigError, Refused
from prep_assets.pipeline.asset import NeedsMore
from prep_assets.pipeline.examples import Item, Reading, held_out, passed_over
from prep_assets.pipeline.media import record_files, shown_files
from prep_assets.pipeline.tokens import mask_columns
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import ASSISTANT, MEDIA, USER, Example, Record, Region, Sample, changed, turn
from prep_assets.schemas.reader import apply
from prep_assets.schemas.text import TextField
from prep_assets.stores.arrays import stretches
from prep_assets.stores.writer import TableWriter
from prep_assets.text.conversation import NONCHARACTER
from prep_assets.text.encode import CANNOT_REPRESENT, Encoded, Encoder
from prep_assets.text.ids import Flat
from prep_assets.text.render import render
from prep_assets.text.spans import NOTHING, Rendered, check_attention, kept_tokens
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary, ends_of

# Source files → documents, in blocks: texts with their records, and the rejected records between them.
#
# A row goes the way of all examples: schema → `Sample` → `Rendered` → text. If the schema `text` would certainly make a document of a row, its text is taken
# directly, which gives the same text without the intermediate forms.

BLOCK_BYTES = 1 << 20
"""Bytes of source in a block. It changes nothing in a store."""
_NONCHARACTER = b"\xef\xb7"
"""First bytes of the `NONCHARACTER` matches in UTF-8: a fast test that few texts fail."""


class Documents(Struct, frozen=True):
    """Consecutive documents of one file.

    Attributes:
        file: their file.
        records, texts: record and text of every document. Texts are valid Unicode.
        refused: (row, rejection) of the records that are no documents.
        held_out: whether their file is held out.
        size: bytes of source of the block.
    """

    file: SourceFile
    records: Sequence[Record]
    texts: Sequence[str]
    refused: Sequence[tuple[int, Refusal]]
    held_out: bool
    size: int

    @property
    def ids(self) -> list[str]:
        """Ids of the documents' records."""
        return [self.id_of(i) for i in range(len(self.records))]

    def id_of(self, i: int) -> str:
        """Id of one document's record."""
        return record_id(self.file, self.records[i].row)

    def write_refused(self, quarantine: Quarantine, later: Sequence[tuple[int, Refused]]) -> None:
        """Write all rejections in row order. `later`: (index, rejection) of documents rejected by later stages."""
        later_refusals = [(self.records[i].row, _refusal(self.file, self.records[i], fault)) for i, fault in later]
        for _, refusal_of_row in sorted([*self.refused, *later_refusals], key=lambda entry: entry[0]):
            quarantine.write(refusal_of_row)


class Sizes(Struct, frozen=True):
    """How many characters a document may have."""

    low: int
    high: int | None

    def check(self, text: str) -> None:
        """Reject a text without words, or with too few or too many characters."""
        if not text or text.isspace() or len(text) < self.low:
            detail = f"{len(text):,} characters, min_chars is {self.low:,} and a document needs a word"
            raise Refused("too_short", detail, stage="pretrain")
        if self.high is not None and len(text) > self.high:
            raise Refused("too_many_chars", f"{len(text):,} characters, max_chars is {self.high:,}", stage="pretrain")


def read_documents(
    reading: Reading, text_of: Callable[[Example], str], check: Callable[[str], None], *, block_bytes: int = BLOCK_BYTES
) -> Iterator[Documents]:
    """The documents of a domain.

    Args:
        text_of: gives the text of an example, or raises `Refused`.
        check: raises `Refused` for a text that is no document.
    """
    schema, account = reading.reader.convert, reading.reader.account
    plain = schema if isinstance(schema, TextField) and schema.key not in account.ignore else None
    for block in reading.rows(block_bytes):
        file, account.trained = block.file, not block.held_out
        records: list[Record] = []
        texts: list[str] = []
        refused: list[tuple[int, Refusal]] = []
        rejections = reading.rejections(file, [row for row in block.rows if isinstance(row, Record)])
        for row in block.rows:
            if not isinstance(row, Record):
                refused.append((row.row, unreadable(file, row)))
                continue
            try:
                if row.row in rejections:
                    raise rejections[row.row]
                text = None if plain is None else plain.plain(row.payload)
                if plain is None or text is None or not _is_clean(text):
                    text = text_of(apply(reading.reader, row.payload))
                else:
                    account.skim(row.payload, {plain.key})
                check(text)
            except Refused as fault:
                refused.append((row.row, _refusal(file, row, fault)))
                continue
            records.append(row)
            texts.append(text)
        reading.check_fields()
        yield Documents(file, records, texts, refused, block.held_out, block.size)


def _is_clean(text: str) -> bool:
    """Whether rendering certainly accepts a text."""
    if text.isascii():
        return True
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return False
    return _NONCHARACTER not in data or NONCHARACTER.search(text) is None


def _refusal(file: SourceFile, record: Record, fault: Refused) -> Refusal:
    return refusal(record_id(file, record.row), fault.stage or "pipeline", fault.reason, fault.detail, record.payload)


def document_text(example: Example) -> str:
    """The text of a document.

    Raises:
        Refused: the example is no `Sample`, or cannot be rendered.
    """
    if not isinstance(example, Sample):
        raise Refused("not_a_document", f"the schema gives {type(example).__name__}, pretraining needs a Sample", stage="pretrain")
    return render(example, None).text


def too_long(offsets: Ints, max_seq_len: int | None) -> Iterator[tuple[int, Refused]]:
    """Yield (index, rejection) of the documents with more than `max_seq_len` tokens."""
    lengths = np.diff(offsets)
    for i in np.flatnonzero(lengths > max_seq_len) if max_seq_len is not None else ():
        yield int(i), Refused("too_long", f"{lengths[i]:,} tokens, max_seq_len is {max_seq_len:,}", stage="tokenize")


def lossy(
    flat: Flat,
    documents: Documents,
    vocabulary: Vocabulary,
    byte_lengths: npt.NDArray[np.int64] | None,
    tokenized: Callable[[str, str], str],
) -> dict[int, Refused]:
    """Return index → rejection of the documents whose tokens do not decode to exactly their bytes.

    Args:
        byte_lengths: bytes per id; `None` if ids have no fixed bytes, so that only unknown tokens show a loss.
        tokenized: text and id of a document → the part that is tokenized. Called only for documents whose bytes do not add up.
    """
    if byte_lengths is None:
        return {} if vocabulary.unknown_id is None else _unknown_characters(flat, vocabulary.unknown_id)
    sizes = np.array([len(text) if text.isascii() else len(text.encode()) for text in documents.texts], np.int64)
    totals = _totals(byte_lengths, flat)
    # a SentencePiece tokenizer puts one space in front of the first word
    allowed = (0, int(vocabulary.prefix_space != "never"))
    surplus = totals - sizes
    suspects = np.flatnonzero((surplus != allowed[0]) & (surplus != allowed[1])).tolist()
    return {
        i: Refused("lossy_tokenizer", CANNOT_REPRESENT, stage="tokenize")
        for i in suspects
        if totals[i] - len(tokenized(documents.texts[i], documents.id_of(i)).encode()) not in allowed
    }


def _unknown_characters(flat: Flat, unknown: int) -> dict[int, Refused]:
    """Return index → rejection of the documents with the unknown token."""
    places = np.flatnonzero(flat.ids == unknown)
    documents = np.unique(np.searchsorted(flat.offsets, places, "right") - 1)
    return {int(document): Refused("lossy_tokenizer", CANNOT_REPRESENT, stage="tokenize") for document in documents}


def _totals(table: npt.NDArray[np.int64], flat: Flat) -> npt.NDArray[np.int64]:
    """Sum `table[id]` over the ids of every text: int64[n]."""
    totals = np.zeros(len(flat.offsets) - 1, np.int64)
    full = np.flatnonzero(np.diff(flat.offsets))  # texts without ids share their start with the next text
    starts = flat.offsets[full]
    narrow = table.astype(np.min_scalar_type(int(table.max(initial=0))))  # stays in the processor's cache
    # mode="clip" would hide this; a check per id takes twice as long
    if (largest := int(flat.ids.max(initial=0))) >= len(table):
        raise CheckFailed(f"the tokenizer's engine gave the id {largest:,}, and the vocabulary has {len(table):,}. Set engine: reference")
    for part in stretches(len(flat.ids), 1 << 16):
        first, stop = int(np.searchsorted(starts, part.start, "right")) - 1, int(np.searchsorted(starts, part.stop))
        local_starts = np.maximum(starts[first:stop] - part.start, 0)
        totals[full[first:stop]] += np.add.reduceat(narrow.take(flat.ids[part], mode="clip"), local_starts, dtype=np.uint32)
    return totals


# Documents with images, loss weights or unattended regions: as plain ones, with a loss mask, an attention mask if a token is unattended, and images.
#
# A token has the weight of its region, 1 by default; tokens of images have 0; the end-of-text token has the weight of the last region before it that is no
# image, and is attended. This path is slower than that of plain documents, so a domain is restarted on it at its first such document.


def stop_at_masks(example: Example, *, images: bool) -> None:
    """Raises:
    NeedsMore: the example is a document with a region whose weight is not 1 or that is not attended, or with an image where there may be `images`.
    """
    if not isinstance(example, Sample):
        return
    plain = all(region.loss_weight in (None, 1) and region.attend for region in _shown_regions(example))
    if not plain or (images and shown_files(example.turns)):
        raise NeedsMore({"loss_mask": "uint8"})


def _shown_regions(sample: Sample) -> list[Region]:
    """The regions that are shown and are no images."""
    return [region for turn in sample.turns for region in turn.regions if region.kind not in MEDIA and not region.drop and region.text]


def _weights(sample: Sample) -> list[float]:
    """The loss weights of the shown regions, 1 by default."""
    return [1.0 if region.loss_weight is None else float(region.loss_weight) for region in _shown_regions(sample)]


def untemplated(workspace: Workspace, family: Pretrain) -> ChatTemplate:
    """The renderer of documents: no template, only the placeholder of images."""
    control = tuple(sorted(workspace.vocabulary(family).control))
    return ChatTemplate("none", "", {}, control=control, **record_files()(workspace, family).marks())


def write_masked_documents(
    workspace: Workspace, reading: Reading, writers: Sequence[TableWriter], quarantine: Quarantine, *, masks: Mapping[str, str]
) -> dict[str, Any]:
    """Read, tokenize and write one domain, in the order of the source. Writers take ``tokens`` and the `masks`, by name with their dtypes.

    Raises:
        ConfigError: fill-in-the-middle is set, which cannot cut such documents.
        NeedsMore: the masks cannot hold the weights.
    """
    family = workspace.family(Pretrain)
    vocabulary = workspace.vocabulary(family)
    if family.preprocessing.fim.rate:
        raise ConfigError(
            f"{reading.name} has images or regions that are not trained: preprocessing.fim would cut documents around them. Set fim.rate to 0"
        )
    documents = MaskedDocuments(workspace, family, reading.domain)
    ends = ends_of(vocabulary, family.bos, family.append_eod)
    counts = {"read": 0, "kept": 0, "tokens": 0, "tokens_train": 0, "tokens_dev": 0, "images": 0, "trained_tokens": 0}
    for items, in_test in reading.examples("tokenize", quarantine):
        kept, rendered, encoded, sound = documents.encode(items, quarantine)
        digests = [xxhash.xxh3_128_digest(rendered[int(at)].text.encode()) for at in encoded.kept]
        dev = np.array([in_test or held_out(digest, family.test_fraction) for digest in digests], bool)
        ending = np.array([documents.ending(kept[int(at)].example) for at in encoded.kept], np.float32)
        for split, writer in enumerate(writers):
            rows = sound & (dev == bool(split))
            per_document = np.diff(encoded.offsets)
            chosen = np.repeat(rows, per_document)
            ids, lengths = ends.around(encoded.ids[chosen], per_document[rows])
            loss = ends.weights_around(encoded.loss[chosen], per_document[rows], ending[rows])
            records = [kept[int(at)].record for at in encoded.kept[rows]]
            images = documents.files.block(encoded.images.of(rows)) if len(encoded.images) else None
            block = {"tokens": ids, **mask_columns(loss, masks)}
            writer.append(block, lengths, [record.file for record in records], [record.row for record in records], images=images)
            counts["tokens_dev" if split else "tokens_train"] += len(ids)
            counts["images"] += 0 if images is None else len(images.images)
            counts["kept"] += len(records)
            counts["trained_tokens"] += int((loss > 0).sum())
    return {**counts, "read": reading.read, "tokens": counts["tokens_train"] + counts["tokens_dev"], **passed_over(reading)}


POLICY = MaskPolicy(mask={}, mask_default="train", train_on_eos="none")
"""Regions without a weight are trained, whatever their role; the end-of-text token does not come from a template."""


class MaskedDocuments:
    """The documents of a domain, checked and rendered."""

    def __init__(self, workspace: Workspace, family: Pretrain, domain: Domain) -> None:
        self._template, self._limit = untemplated(workspace, family), family.preprocessing.max_seq_len
        self.files = record_files()(workspace, family, domain)
        self._sizes = Sizes(family.preprocessing.min_chars, family.preprocessing.max_chars)
        self._encoder = Encoder(workspace.vocabulary(family), workspace.engines(family), POLICY, trains=False)

    def encode(self, items: Sequence[Item], quarantine: Quarantine) -> tuple[list[Item], list[Rendered], Encoded, npt.NDArray[np.bool_]]:
        """See `render`; with the tokens, and which of them are of documents that are kept. Rejected ones are in quarantine."""
        kept, rendered = self.render(items, quarantine)
        encoded = self._encoder.encode(rendered)
        long = {int(encoded.kept[at]): fault for at, fault in too_long(encoded.offsets, self._limit)}
        faults = {**dict(encoded.refused), **long}
        for at, fault in sorted(faults.items()):
            kept[at].reject(quarantine, fault)
        return kept, rendered, encoded, ~np.isin(encoded.kept, list(long))

    def render(self, items: Sequence[Item], quarantine: Quarantine) -> tuple[list[Item], list[Rendered]]:
        """The items that are documents of valid size with existing images, and their renders. Rejected ones are in quarantine."""
        kept, rendered = [], []
        for item in items:
            try:
                rendered.append(self._render(item.example))
                kept.append(item)
            except Refused as refusal:
                item.reject(quarantine, refusal)
        return kept, rendered

    def _render(self, example: Example) -> Rendered:
        if not isinstance(example, Sample):
            raise Refused("not_a_document", f"the schema gives {type(example).__name__}, pretraining needs a Sample", stage="pretrain")
        example = self.files.ready(example)
        if not any(_weights(example) or [1.0]):
            raise Refused("nothing_to_train", "every region of this document weighs 0", stage="pretrain")
        rendered = render(example, self._template)
        check_attention(POLICY, rendered)
        regions = (region for turn in example.turns for region in turn.regions)
        self._sizes.check("".join(region.text for region in regions if region.kind not in MEDIA and not region.drop))
        return rendered

    @staticmethod
    def ending(example: Example) -> float:
        """The weight of the end-of-text token after a document."""
        return (_weights(example) or [1.0])[-1] if isinstance(example, Sample) else 1.0


# Rows that bring their token ids and loss weights: proven row by row, then stored unchanged.
#
# Ids are never trusted. They must be inside the vocabulary and decode to whole characters; if the row has their text or messages, they must be the ids that
# the tokenizer gives for these. A mask must not split a character, nor be shifted by one token against the answers.

BROKEN = "\ufffd"
WeightedIds = tuple[Ints, Float32s]


class TokenizedRows(Struct, dict=True):
    """Proves rows that bring ids, and converts them to encoded examples.

    Attributes:
        encoder: tokenizes the messages of rows; its limit and truncation apply to the rows.
        render: renders a conversation, or raises `Refused`.
        sample: gives the sample of an item, or raises `Refused`.
        quarantine: where rejected rows go.
        made_by: the tokenizer that made the ids, from the domain's configuration; `None` if it names none.
        media: the ids that stand for images and audio, which no row may bring.
        rows, retokenized, own_masks: number of kept rows, of those whose decoded text tokenizes to other ids, and of those with messages whose mask differs
            from the policy's.
    """

    encoder: Encoder
    render: Callable[[Sample], Rendered]
    sample: Callable[[Item], Sample]
    quarantine: Quarantine
    made_by: str | None = None
    media: tuple[int, ...] = ()
    rows: int = 0
    retokenized: int = 0
    own_masks: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Counts for the manifest; empty if no row brings ids."""
        counts = {"tokenized_rows": self.rows, "retokenized_otherwise": self.retokenized, "masks_of_their_own": self.own_masks}
        return counts if self.rows else {}

    def of(self, items: Sequence[Item]) -> tuple[list[Item], Encoded]:
        """The kept items and their ids. Rejected ones are in quarantine.

        Raises:
            ConfigError: `tokenized_by` is not set.
        """
        if not self.made_by:
            raise ConfigError(
                f"{items[0].id} brings token ids, and nothing says which tokenizer made them. Set tokenized_by of the domain to its folder"
            )
        kept: list[Item] = []
        samples: list[Sample] = []
        for item in items:
            try:
                samples.append(self.sample(item))
                kept.append(item)
            except Refused as refusal:
                item.reject(self.quarantine, refusal)
        encoded = self.encode(samples)
        for position, fault in encoded.refused:
            kept[position].reject(self.quarantine, fault)
        return [kept[position] for position in encoded.kept.tolist()], encoded

    def encode(self, samples: Sequence[Sample]) -> Encoded:
        """The ids and weights of samples that bring them. Every sample is kept or rejected."""
        rows = [_arrays(sample) for sample in samples]
        lengths = [len(ids) for ids, _ in rows]
        faults: dict[int, Refused] = {}
        for at, (ids, weights) in enumerate(rows):
            try:
                self._check_ids(ids, weights)
            except Refused as fault:
                faults[at] = fault
        sound = [at for at in range(len(rows)) if at not in faults]
        sound_rows = [samples[at] for at in sound], [rows[at] for at in sound]
        for at, retokenized, own_mask in zip(sound, self._check_texts(*sound_rows), self._check_messages(*sound_rows), strict=True):
            try:
                for outcome in (retokenized, own_mask):
                    if isinstance(outcome, Refused):
                        raise outcome
                self._check_place(*rows[at])
                rows[at] = self._cut(*rows[at])
            except Refused as fault:
                faults[at] = fault
                continue
            self.rows, self.retokenized, self.own_masks = (
                self.rows + 1,
                self.retokenized + bool(retokenized),
                self.own_masks + bool(own_mask),
            )
        return _batch(rows, lengths, faults)

    def _check_ids(self, ids: Ints, weights: Float32s) -> None:
        vocabulary = self.encoder.vocabulary
        if not 0 <= ids.min() <= ids.max() < vocabulary.size:
            wrong = int(ids[(ids < 0) | (ids >= vocabulary.size)][0])
            raise _rejected("id_outside_vocabulary", f"id {wrong}, the vocabulary has {vocabulary.size:,}")
        if not weights.any():
            raise _rejected("nothing_to_train", "no token of this example carries loss")
        if "bos_token" in vocabulary.special and (ids[:2] == vocabulary.bos_id).all() and len(ids) > 1:
            raise _rejected("doubled_bos", f"it begins with {vocabulary.special['bos_token']!r} twice")
        if np.isin(ids, self.media).any():
            raise _rejected("image_token_in_content", "it holds a token that stands for images or audio, and brings none")

    def _check_texts(self, samples: Sequence[Sample], rows: Sequence[WeightedIds]) -> list[bool | Refused]:
        """For every row, whether its decoded text tokenizes to other ids, or its rejection."""
        vocabulary = self.encoder.vocabulary
        runs = [[(start, end) for start, end in _runs(weights)] for _, weights in rows]
        texts = vocabulary.decode_batch([ids.tolist() for ids, _ in rows])
        trained = iter(
            vocabulary.decode_batch([ids[s:e].tolist() for (ids, _), row_runs in zip(rows, runs, strict=True) for s, e in row_runs])
        )
        encoded = self._encoded(texts)
        row_texts = iter(
            self._encoded([sample.tokenized.text for sample in samples if sample.tokenized and sample.tokenized.text is not None])
        )
        outcomes: list[bool | Refused] = []
        for sample, (ids, _), row_runs, text, accepted in zip(samples, rows, runs, texts, encoded, strict=True):
            parts = [next(trained) for _ in row_runs]
            evidence = next(row_texts) if sample.tokenized and sample.tokenized.text is not None else None
            outcomes.append(_text_fault(ids, text, parts, accepted, evidence) or ids.tolist() not in accepted)
        return outcomes

    def _encoded(self, texts: Sequence[str]) -> list[list[list[int]]]:
        """The ids of every text, without and with the tokens that the tokenizer adds around it. Control tokens are recognized."""
        backend = self.encoder.vocabulary.encoder
        backend.encode_special_tokens = False
        plain, whole = (backend.encode_batch(list(texts), add_special_tokens=add) for add in (False, True))
        return [[a.ids, b.ids] for a, b in zip(plain, whole, strict=True)]

    def _check_messages(self, samples: Sequence[Sample], rows: Sequence[WeightedIds]) -> list[bool | Refused]:
        """For every row, whether its mask differs from the policy's for its messages, or its rejection; `False` without messages."""
        outcomes: list[bool | Refused] = [False] * len(rows)
        renders: dict[int, Rendered] = {}
        for at, sample in enumerate(samples):
            try:
                if sample.turns:
                    renders[at] = self.render(changed(sample, tokenized=None))
            except Refused as fault:
                outcomes[at] = fault
        numbers = list(renders)
        encoded = self._whole.encode(list(renders.values()))
        for at, refusal in encoded.refused:
            outcomes[numbers[at]] = refusal
        for at, (low, high) in zip(encoded.kept.tolist(), pairwise(encoded.offsets.tolist()), strict=True):
            outcomes[numbers[at]] = self._mask_differs(rows[numbers[at]], encoded.ids[low:high], encoded.loss[low:high])
        return outcomes

    def _mask_differs(self, row: WeightedIds, expected: npt.NDArray[np.uint32], policy: Float32s) -> bool | Refused:
        """Whether the mask of a row differs from the policy's, or a rejection if its ids differ or its mask is shifted."""
        ids, weights = row
        if not np.array_equal(expected, ids):
            return _rejected("ids_differ_from_messages", _difference(ids, expected, self.encoder))
        if np.array_equal(policy, weights):
            return False
        if any(np.array_equal(np.roll(policy, by)[1:-1], weights[1:-1]) for by in (-1, 1)):
            return _rejected("mask_shifted", "the mask is that of the messages, one token beside its place")
        return True

    @cached_property
    def _whole(self) -> Encoder:
        """The encoder without a limit, which accepts examples with nothing to train."""
        return replace(self.encoder, max_seq_len=None, trains=False)

    def _check_place(self, ids: Ints, weights: Float32s) -> None:
        """Reject a mask whose stretches all begin one token before or after the template's opening of an answer."""
        if (opening := self._opening) is None:
            return
        (header, stop), listed, runs = opening, ids.tolist(), _runs(weights)

        def opened_at(place: int) -> bool:
            return place >= len(header) and listed[place - len(header) : place] == header

        late = all(opened_at(start - 1) and listed[start - 1] != stop for start, _ in runs)
        early = all(opened_at(start + 1) and listed[end : end + 1] == [stop] and listed[end - 1] != stop for start, end in runs)
        if late or early:
            side = "behind" if late else "before"
            raise _rejected("mask_shifted", f"each trained stretch begins one token {side} the place where the template opens an answer")

    @cached_property
    def _opening(self) -> tuple[list[int], int] | None:
        """The ids with which the template opens an answer, and that which ends it; `None` if no control token marks the opening."""
        try:
            encoded = replace(self._whole, policy=MaskPolicy()).encode([self.render(Sample((turn(USER, "a"), turn(ASSISTANT, "b"))))])
        except Refused:
            return None
        ids, trained, control = encoded.ids.tolist(), np.flatnonzero(encoded.loss), set(self.encoder.vocabulary.control.values())
        before = [at for at in range(int(trained[0])) if ids[at] in control] if len(trained) else []
        if not before:
            return None
        return ids[before[-1] : trained[0]], ids[trained[-1]]

    def _cut(self, ids: Ints, weights: Float32s) -> tuple[Ints, Float32s]:
        """Truncate a row. Only its ends can be cut, because its rounds and prompts are unknown."""
        limit, mode = self.encoder.max_seq_len, self.encoder.truncation
        if limit is None or len(ids) <= limit:
            return ids, weights
        keep = kept_tokens(len(ids), limit, mode, (), {}) if mode in ("start", "end") else None
        if keep is None:
            raise _rejected("too_long", f"{len(ids):,} tokens, max_seq_len is {limit:,}")
        if not weights[keep].any():
            raise _rejected("nothing_to_train", "no token that truncation leaves carries loss")
        return ids[keep], weights[keep]


def _arrays(sample: Sample) -> tuple[Ints, Float32s]:
    assert sample.tokenized is not None
    return np.array(sample.tokenized.ids, np.int64), np.array(sample.tokenized.weights, np.float32)


def _runs(weights: Float32s) -> list[tuple[int, int]]:
    """Start and end of each trained stretch."""
    edges = [0, *(np.flatnonzero(np.diff(weights != 0)) + 1).tolist(), len(weights)]
    return [(start, end) for start, end in pairwise(edges) if weights[start]]


def _text_fault(
    ids: Ints, text: str, parts: Sequence[str], same: Sequence[list[int]], evidence: Sequence[list[int]] | None
) -> Refused | None:
    if BROKEN in text and ids.tolist() not in same:
        return _rejected("broken_text", f"its ids decode to a part of a character: …{text[max(0, text.index(BROKEN) - 20) :][:40]!r}…")
    if sum(part.count(BROKEN) for part in parts) > text.count(BROKEN):
        return _rejected("mask_splits_character", "a trained stretch begins or ends amid a character")
    if evidence is not None and ids.tolist() not in evidence:
        return _rejected(
            "ids_differ_from_text",
            f"{len(ids)} ids that decode to {text[:80]!r} are not the tokenizer's {len(evidence[0])} of the row's text",
        )
    return None


def _difference(ids: Ints, expected: npt.NDArray[np.uint32], encoder: Encoder) -> str:
    shorter = min(len(ids), len(expected))
    differing = np.flatnonzero(ids[:shorter] != expected[:shorter])
    at = int(differing[0]) if len(differing) else shorter
    excerpts = [encoder.vocabulary.decode(sequence[max(0, at - 4) : at + 4]) for sequence in (ids, expected)]
    return f"{len(ids)} ids, its messages have {len(expected)}; at token {at} stands …{excerpts[0]!r}…, the messages have …{excerpts[1]!r}…"


def _rejected(reason: str, detail: str) -> Refused:
    return Refused(reason, detail, stage="tokenize")


def _batch(rows: Sequence[WeightedIds], lengths: Sequence[int], faults: dict[int, Refused]) -> Encoded:
    """The batch of the kept rows; `lengths` are those before truncation."""
    kept = [at for at in range(len(rows)) if at not in faults]
    ids = [rows[at][0].astype(np.uint32) for at in kept]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(row_ids) for row_ids in ids], dtype=np.int64)])
    none = np.zeros(0, np.uint32)
    weights = np.concatenate([np.zeros(0, np.float32), *(rows[at][1] for at in kept)])
    refused = tuple(sorted(faults.items(), key=lambda fault: fault[0]))
    taken = np.array([lengths[at] for at in kept], np.int64) - np.diff(offsets)
    return Encoded(np.concatenate([none, *ids]), weights, offsets, np.array(kept, np.int64), refused, NOTHING, taken)
