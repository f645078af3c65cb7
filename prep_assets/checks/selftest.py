"""The selftest: mutations of the rows of a store, by kind of store, and how often the check that is there for each noticed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.checks.of_conversations import (
    Chats,
    group_conversations,
    group_prompts,
    group_rows,
    group_samples,
    group_scores,
    prompt_conversations,
)
from prep_assets.checks.of_documents import document_texts, masked_documents, prove_document_masks
from prep_assets.checks.of_lines import LinesMatch, MergedStream, matched_questions, merged_files, merged_streams
from prep_assets.checks.of_packed import mixture_of
from prep_assets.checks.sources_again import sft_blocks, sft_reading
from prep_assets.config.models import Pretrain, Sft
from prep_assets.errors import CheckFailed
from prep_assets.pipeline.asset import Store
from prep_assets.pipeline.groups import splits
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.documents import Text, documents_begin_with, prove_texts
from prep_assets.proofs.groups import check_rewards, check_sampled
from prep_assets.proofs.mask import Conversation, Row, prove_identity, prove_masks
from prep_assets.proofs.merged import MergedRows, check_merged_lines
from prep_assets.proofs.mutations import (
    ATTENTION_MASK_MUTATIONS,
    ATTENTION_MUTATIONS,
    DOCUMENT_MUTATIONS,
    LINE_MUTATIONS,
    MASK_MUTATIONS,
    MUTATIONS,
    NAME,
    PROMPT_MUTATIONS,
    PROMPT_TOKEN_MUTATIONS,
    RECORD_MUTATIONS,
    REWARD_MUTATIONS,
    ROLLOUT_MUTATIONS,
    UNENDED_MUTATIONS,
    Mutation,
    Records,
)
from prep_assets.proofs.packed import check_pieces
from prep_assets.proofs.rows import (
    Line,
    check_contrasts,
    check_golds,
    check_lines,
    check_packed,
    check_pairs,
    check_positions,
    check_records,
)
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import PlainChat, Sample
from prep_assets.stores.packed import PackedStore, open_packed
from prep_assets.stores.tokens import ATTENTION, TokenStore, open_tokens, unsigned
from prep_assets.text.documents import STARTS
from prep_assets.text.template import ChatTemplate, marks_generated
from prep_assets.text.vocabulary import Vocabulary

# Trials of the selftest: a mutation, and how often the check that is there for it noticed.

ROWS = 64
"""Rows that are copied from a stream."""
TRIES = 8
"""Rows that each mutation is done to."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one mutation came to.

    Attributes:
        mutation: what was done; ``""`` for the clean rows.
        check: the check that must fail (for the clean rows: none may).
        tried, caught: on how many rows it was tried, and how often the check failed. None lends itself to it where it was tried on 0 rows.
        shown: what the check said the first time.
    """

    mutation: str
    check: str
    tried: int
    caught: int
    shown: str

    @property
    def passed(self) -> bool:
        """Whether every corruption was caught, or every clean row passed."""
        return self.caught == self.tried


def trials_of(
    subject: Any,
    count: int,
    mutations: Iterable[Mutation],
    checks: Mapping[str, Callable[[Any], Verdict]],
    *more: Any,
    what: str = "every check",
) -> list[Trial]:
    """Every check passes a subject as it is, and notices every mutation that is done to some of what it holds.

    Args:
        count: how many there are to corrupt; none of nothing.
        checks: by the names that mutations are caught by.
        more: what mutations are given beside the subject and a number.
        what: the clean subject.
    """
    found = [clean(what, [check(subject) for check in checks.values()])] if count else []
    for mutation in mutations if count else ():
        corrupted = [changed for at in chosen(count) if (changed := mutation.change(subject, at, *more)) is not None]
        found.append(tried(mutation.name, mutation.caught_by, [checks[mutation.caught_by](each) for each in corrupted]))
    return found


def tried(name: str, check: str, verdicts: Sequence[Verdict]) -> Trial:
    """The trial of a mutation that was done to several rows."""
    shown = verdicts[0].summary if verdicts else ""
    return Trial(name, check, len(verdicts), sum(not verdict.passed for verdict in verdicts), shown)


def clean(what: str, verdicts: Sequence[Verdict]) -> Trial:
    """The trial of rows that nothing was done to."""
    failed = "; ".join(verdict.summary for verdict in verdicts if not verdict.passed)
    return Trial("", what, len(verdicts), sum(verdict.passed for verdict in verdicts), failed)


def chosen(count: int) -> range:
    """Which of so many rows mutations are done to."""
    return range(0, count, max(1, count // TRIES))


def stream_of(tokens: Sequence[Any], **arrays: Any) -> TokenStore:
    """Rows of token ids as a stream in memory, with what else it has."""
    ends = np.cumsum([len(ids) for ids in tokens])
    found = {"tokens": np.concatenate(list(tokens)), **arrays}
    return TokenStore(found, ends, np.zeros(len(tokens), np.int32), np.arange(len(tokens)))


# Selftest of token rows with a mask: conversations, both sides of pairs, scored groups.

_TAGS = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")


def masked_trials(kind: type[Chats], store: Store) -> list[Trial]:
    """Corruptions of every stream of a store of such conversations."""
    found, chats = list[Trial](), kind(store)
    for name in store.streams():
        rows = [row for _, row in islice(chats.rows(name), ROWS)]
        found += _rows(rows, list(islice(chats.renders(name), ROWS)), store.vocabulary)
    return found


def sft_trials(store: Store) -> list[Trial]:
    """Corruptions of conversations, and of the tags of their template where it has any."""
    template = store.workspace.template(store.workspace.family(Sft))
    marked, read, trials = template.training or template.source, sft_reading(store), masked_trials(Chats, store)
    if not marks_generated(marked):
        return trials
    options = MaskOptions(**{key: store.recipe[key] for key in MaskOptions.__dataclass_fields__})
    spoiled = replace(template, training=everything_marked(marked))
    for stream in store.streams().values():
        examples = islice(chain.from_iterable(some.sources for some in sft_blocks(store, stream)), TRIES)
        samples = [read(example) if isinstance(example, PlainChat) else example for example in examples]
        tagged = [sample for sample in samples if sample.tokenized is None and derive(sample, options, template).tagged]
        verdicts = [_by_tags(sample, options, spoiled) for sample in tagged]
        trials.append(tried("tags of the template mark the question as well", "mask_alignment", verdicts))
    return trials


def _by_tags(sample: Sample, options: MaskOptions, template: ChatTemplate) -> Verdict:
    try:
        return Verdict(True, derive(sample, options, template).text, {})
    except CheckFailed as error:
        return Verdict(False, str(error), {})


def everything_marked(source: str) -> str:
    """A template whose tags enclose whole chats: masks stay what they are, and so does their second derivation."""
    bare = _TAGS.sub(lambda tag: f"{{%{tag[1]} {'endif' if tag[2] else 'if true'} {tag[3]}%}}", source.removesuffix("\n"))
    return f"{{% generation %}}{bare}{{% endgeneration %}}"


def group_trials(store: Store) -> list[Trial]:
    """Corruptions of scored groups."""
    return [trial for folder in splits(store.directory).values() for trial in (*_groups(store, folder), *_rollouts(store, folder))]


def _rows(rows: list[Row], renders: list[Conversation], vocabulary: Vocabulary) -> list[Trial]:
    checks: dict[str, Callable[[Sequence[Row]], Verdict]] = {
        "mask_alignment": lambda found: prove_masks(found, vocabulary),
        "row_integrity": lambda found: check_records(_stream(found), vocabulary_size=vocabulary.size),
        "tokenization_identity": lambda found: prove_identity(
            (replace(render, ids=row.ids) for render, row in zip(renders, found, strict=True)), vocabulary
        ),
    }
    mutations = (*MUTATIONS, *(ATTENTION_MUTATIONS if any((row.mask < 0).any() for row in rows) else ()))
    return trials_of(rows, len(rows), mutations, checks, vocabulary)


def _groups(store: Store, folder: Path) -> list[Trial]:
    """Every mutation of rows on conversations, the border between prompt and response moved, and rewards spoiled."""
    vocabulary = store.vocabulary
    rows, renders = list(islice(group_rows(store, folder), ROWS)), list(islice(group_conversations(store, folder), ROWS))
    prompts, scores = list(islice(group_prompts(store, folder), ROWS)), list(islice(group_scores(store, folder), ROWS))
    if not rows:
        return []
    moved = Mutation("border of prompt and response moved", "tokenization_identity", lambda found, at: [_without_last(found[at])])
    proven = {"tokenization_identity": partial(prove_identity, vocabulary=vocabulary)}
    border = trials_of(prompts, len(prompts), (moved,), proven)
    rewards = trials_of(scores, len(scores), REWARD_MUTATIONS, {"rewards": check_rewards})
    groups = clean("every check of groups", [prove_identity(prompts, vocabulary), check_rewards(scores)])
    return [*_rows(rows, renders, vocabulary), groups, *border[1:], *rewards[1:]]


def _without_last(prompt: Conversation) -> Conversation:
    return replace(prompt, ids=prompt.ids[:-1])


def _rollouts(store: Store, folder: Path) -> list[Trial]:
    """Sampled ids spoiled, where the source has them."""
    groups = list(islice(group_samples(store, folder), TRIES))
    return trials_of(groups, len(groups), ROLLOUT_MUTATIONS, {"sampled_ids": check_sampled}, what="sampled_ids")


def _stream(rows: Sequence[Row]) -> TokenStore:
    loss, attended = unsigned(np.concatenate([row.mask for row in rows]))
    return stream_of([row.ids for row in rows], loss_mask=loss, **{ATTENTION: attended.view(np.uint8)})


# Selftest of token rows without a mask: documents and prompts.

Ids = npt.NDArray[Any]
Check = Callable[[Sequence[Ids]], Verdict]


def document_trials(store: Store) -> list[Trial]:
    """Corruptions of documents. Those with images, or cut for fill-in-the-middle, are left alone: their ids do not stand in the order of the text."""
    vocabulary, family = store.vocabulary, store.workspace.family(Pretrain)
    bos, ended = documents_begin_with(vocabulary, family.bos), family.append_eod
    begin, trials = int(bos is not None), list[Trial]()
    for stream in store.streams().values():
        trials += _mask_trials(store, stream) if "loss_mask" in stream.arrays else []
        texts = [] if len(stream.images) else list(islice(document_texts(store, stream), ROWS))
        whole = [(number, text) for number, text in enumerate(texts) if not text.parts or STARTS in stream.arrays]
        if not whole:
            continue
        rows = [stream.record(number, "tokens") for number, _ in whole]
        expected = [text for _, text in whole]

        def texts_of(found: Sequence[Ids], expected: Sequence[Text] = expected) -> Verdict:
            changed = [replace(text, ids=ids[begin : len(ids) - ended]) for text, ids in zip(expected, found, strict=True)]
            return prove_texts(changed, vocabulary)

        checks: dict[str, Check] = {
            "tokenization_identity": texts_of,
            "row_integrity": lambda found: check_records(
                stream_of(found), vocabulary_size=vocabulary.size, eos_id=vocabulary.eos_id, bos_id=bos, ended=ended
            ),
        }
        mutations = DOCUMENT_MUTATIONS if ended else UNENDED_MUTATIONS
        trials += trials_of(rows, len(rows), mutations, checks, vocabulary.eos_id, vocabulary.size)
    return trials


def _mask_trials(store: Store, stream: TokenStore) -> list[Trial]:
    documents = list(islice(masked_documents(store, stream), ROWS))
    unattended = ATTENTION_MASK_MUTATIONS if any((document.mask < 0).any() for document in documents) else ()
    checks = {"mask_alignment": partial(prove_document_masks, store)}
    return trials_of(documents, len(documents), (*MASK_MUTATIONS, *unattended), checks, what="mask_alignment")


def prompt_token_trials(store: Store) -> list[Trial]:
    """Corruptions of tokenized prompts."""
    vocabulary = store.vocabulary
    trials: list[Trial] = []
    for name in store.streams():
        renders = list(islice(prompt_conversations(store, name), ROWS))

        def identity(found: Sequence[Ids], renders: Sequence[Conversation] = renders) -> Verdict:
            return prove_identity([replace(render, ids=ids) for render, ids in zip(renders, found, strict=True)], vocabulary)

        checks: dict[str, Check] = {
            "tokenization_identity": identity,
            "row_integrity": lambda found: check_records(stream_of(found), vocabulary_size=vocabulary.size),
        }
        rows = [render.ids for render in renders]
        trials += trials_of(rows, len(rows), PROMPT_TOKEN_MUTATIONS, checks, vocabulary.eos_id, vocabulary.size)
    return trials


# Selftest of JSONL stores: corruptions of pairs, prompts and golds; and of merged stores: lines and records lost, doubled, exchanged, altered.


def line_trials(kind: type[LinesMatch], other: str, mutations: Sequence[Mutation], store: Store) -> list[Trial]:
    """Corruptions of lines that `source_match` or the `other` check must notice."""
    return _trials(kind(store).first_lines(ROWS), other, mutations)


def question_trials(store: Store) -> list[Trial]:
    """Corruptions of generated questions."""
    return _trials(list(islice(matched_questions(store), ROWS)), "gold_answers", PROMPT_MUTATIONS)


def _trials(lines: list[Line], other: str, mutations: Sequence[Mutation]) -> list[Trial]:
    golds = [_gold(line) for line in lines]
    checks: dict[str, Callable[[Sequence[Line]], Verdict]] = {
        "source_match": lambda found: check_lines(found, stored=len(found)),
        "pair_sanity": lambda found: check_pairs(
            [line.stored for line in found if "label" not in line.stored], [], [line.stored for line in found if "label" in line.stored]
        ),
        "contrast_sanity": lambda found: check_contrasts([line.stored for line in found], []),
        "gold_answers": lambda found: check_golds(
            (line.id, "", line.stored.get("gold"), gold) for line, gold in zip(found, golds, strict=True) if "verifier" not in line.stored
        ),
    }
    return trials_of(lines, len(lines), mutations, {name: checks[name] for name in ("source_match", other)})


def _gold(line: Line) -> Fraction | None:
    """The gold that the row of a line gives."""
    gold = (line.made or {}).get("gold")
    return Fraction(repr(gold)) if isinstance(gold, float) else None


def merged_line_trials(store: Store) -> list[Trial]:
    """Corruptions of merged lines."""
    trials: list[Trial] = []
    for each in merged_files(store):
        merged, parts = (MergedRows(store.origin, list(store.lines)) for store in (each.merged, each.parts))
        check = partial(_merged_lines, name=each.name, parts=parts, seed=each.seed)
        trials += trials_of(merged, len(merged.origin), LINE_MUTATIONS, {NAME: check}, what=f"{NAME} ({each.name})")
    return trials


def _merged_lines(merged: MergedRows, *, name: str, parts: MergedRows, seed: int | None) -> Verdict:
    return check_merged_lines(name, merged, parts, seed)


def merged_record_trials(store: Store) -> list[Trial]:
    """Corruptions of merged tokens."""
    trials: list[Trial] = []
    for each in merged_streams(store):
        if not len(each.store):
            continue
        trials.append(clean(f"{NAME} ({each.name})", [each.verdict()]))
        arrays = {key: np.array(array[:]) for key, array in each.store.arrays.items()}
        whole = Records(arrays, each.store.ends, each.store.file, each.store.row)
        trials += trials_of(whole, len(each.store), RECORD_MUTATIONS, {NAME: partial(_merged_records, each=each)})[1:]
    return trials


def _merged_records(found: Records, *, each: MergedStream) -> Verdict:
    return replace(each, store=TokenStore(found.arrays, found.ends, found.file, found.row), source=None).verdict()


# Selftest of packed tables: corruptions of a whole table, in memory.


def packed_trials(store: Store) -> list[Trial]:
    """Borders moved, padding trained, a mask shifted inside a row, two rows swapped: on the whole table, in memory."""
    vocabulary, table = store.vocabulary, open_packed(store.directory, "sft_packed")
    tokens = {name: open_tokens(store.above("sft_tokens", name).directory, "train") for name in table.sources}
    once = not store.recipe["packing"].get("epochs")
    attention = None if table.attention_mask is None else np.asarray(table.attention_mask)
    packed = PackedStore(
        np.asarray(table.tokens), np.asarray(table.loss_mask), table.documents, table.sources, table.row_len, attention_mask=attention
    )

    def integrity(changed: PackedStore) -> Verdict:
        return check_packed(changed, vocabulary_size=vocabulary.size, pad_id=vocabulary.pad_id)

    def alignment(changed: PackedStore) -> Verdict:
        return check_pieces(changed, tokens, once=once)

    changes: dict[tuple[str, str], Verdict] = {
        ("mask shifted by +1 in every row", "mask_alignment"): alignment(replace(packed, loss_mask=np.roll(packed.loss_mask, 1, axis=1))),
        ("mask shifted by -1 in every row", "mask_alignment"): alignment(replace(packed, loss_mask=np.roll(packed.loss_mask, -1, axis=1))),
        ("mask all ones", "mask_alignment"): alignment(replace(packed, loss_mask=np.ones_like(packed.loss_mask))),
        ("mask all zeros", "row_integrity"): integrity(replace(packed, loss_mask=np.zeros_like(packed.loss_mask))),
        ("a token replaced", "mask_alignment"): alignment(replace(packed, tokens=_one_changed(packed.tokens, vocabulary.size))),
        ("documents' borders moved", "row_integrity"): integrity(replace(packed, documents=_moved(packed))),
        ("two documents exchanged", "mask_alignment"): alignment(replace(packed, documents=_exchanged(packed))),
    }

    def positions(ids: npt.NDArray[Any]) -> Verdict:
        return check_positions(ids, packed.documents, packed.row_len)

    def mixture(documents: dict[str, npt.NDArray[Any]]) -> Verdict:
        return mixture_of(store, "sft_packed", documents)

    counted, documents = _positions(packed), {field: np.array(values) for field, values in packed.documents.items()}
    piece, number = len(documents["row"]) // 2, np.arange(len(documents["row"]))
    found = {
        **changes,
        ("position ids run on", "row_integrity"): positions(np.tile(np.arange(packed.row_len), (len(packed), 1))),
        ("position ids all zero", "row_integrity"): positions(np.zeros_like(counted)),
        ("position ids from 1", "row_integrity"): positions(counted + 1),
        ("a border inside a document", "row_integrity"): integrity(replace(packed, documents=_split(packed))),
        ("padding trained", "row_integrity"): integrity(_with_padding(packed, vocabulary.pad_id, "trained")),
        ("padding of another token", "row_integrity"): integrity(_with_padding(packed, vocabulary.pad_id, "another token")),
        ("a document replaced by padding", "mixture"): mixture({field: values[number != piece] for field, values in documents.items()}),
        ("a domain missing", "mixture"): mixture({field: values[documents["source"] > 0] for field, values in documents.items()}),
        ("a record used again", "mixture"): mixture({field: np.append(values, values[piece]) for field, values in documents.items()}),
        ("a record replaced by another", "mixture"): mixture({**documents, "record": documents["record"] + (number == piece)}),
        ("a record cut short", "mixture"): mixture({**documents, "length": documents["length"] - (number == piece)}),
    }
    if attention is not None:
        shifted, trained = np.roll(attention, 1, axis=1), packed.loss_mask != 0
        found |= {
            ("attention lost", "mask_alignment"): alignment(replace(packed, attention_mask=None)),
            ("attention shifted by +1 in every row", "mask_alignment"): alignment(replace(packed, attention_mask=shifted)),
            ("attention turned round", "mask_alignment"): alignment(replace(packed, attention_mask=1 - attention)),
            ("trained tokens not attended", "row_integrity"): integrity(replace(packed, attention_mask=attention * ~trained)),
            ("padding attended", "row_integrity"): integrity(_with_padding(packed, vocabulary.pad_id, "attended")),
        }
    whole = [integrity(packed), alignment(packed), positions(counted), mixture(documents)]
    return [clean("every check", whole), *(tried(name, check, [verdict]) for (name, check), verdict in found.items())]


def _positions(packed: PackedStore) -> npt.NDArray[np.int64]:
    """Position ids as they must be, which tables of the format h5 do not store."""
    ids = np.zeros((len(packed), packed.row_len), np.int64)
    for row, offset, length in zip(*(packed.documents[field].tolist() for field in ("row", "row_offset", "length")), strict=True):
        ids[row, offset : offset + length] = np.arange(length)
    return ids


def _split(packed: PackedStore) -> dict[str, npt.NDArray[Any]]:
    """The longest piece is two."""
    documents = {field: np.array(values) for field, values in packed.documents.items()}
    piece = int(documents["length"].argmax())
    size, first = int(documents["length"][piece]), int(documents["length"][piece]) // 2
    documents = {field: np.insert(values, piece + 1, values[piece]) for field, values in documents.items()}
    documents["length"][[piece, piece + 1]] = first, size - first
    documents["row_offset"][piece + 1] += first
    documents["start"][piece + 1] += first
    return documents


def _with_padding(packed: PackedStore, pad: int, fault: Literal["trained", "another token", "attended"]) -> PackedStore:
    """The last piece becomes padding with a fault."""
    documents = {field: np.array(values) for field, values in packed.documents.items()}
    row, offset, length = (int(documents[field][-1]) for field in ("row", "row_offset", "length"))
    here = row, slice(offset, offset + length)
    changed = {"tokens": packed.tokens.copy(), "loss_mask": packed.loss_mask.copy()}
    changed["tokens"][here], changed["loss_mask"][here] = pad + (fault == "another token"), fault == "trained"
    if packed.attention_mask is not None:
        changed[ATTENTION] = packed.attention_mask.copy()
        changed[ATTENTION][here] = fault == "attended"
    return replace(packed, **changed, documents={field: values[:-1] for field, values in documents.items()})


def _one_changed(tokens: np.ndarray, size: int) -> np.ndarray:
    changed = tokens.copy()
    changed[len(changed) // 2, 0] = (int(changed[len(changed) // 2, 0]) + 1) % size
    return changed


def _moved(packed: PackedStore) -> dict[str, np.ndarray]:
    documents = {field: np.array(values) for field, values in packed.documents.items()}
    documents["row_offset"][len(documents["row"]) // 2] += 1
    return documents


def _exchanged(packed: PackedStore) -> dict[str, np.ndarray]:
    """Two pieces of one domain trade their records."""
    documents = {field: np.array(values) for field, values in packed.documents.items()}
    documents["record"][[0, -1]] = documents["record"][[-1, 0]]
    documents["source"][[0, -1]] = documents["source"][[-1, 0]]
    return documents
