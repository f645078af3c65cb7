"""The selftest: mutations of the rows of a store, by kind of store, and how often the check for each caught it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct

from prep_assets.array_types import Array
from prep_assets.checks.of_conversations import Chats, Conversations
from prep_assets.checks.of_documents import document_texts, masked_documents, masks_rule
from prep_assets.checks.relations import pairs_of
from prep_assets.checks.sources_again import StoredRows, files_of, stored_rows, streams_of
from prep_assets.config.models import Pretrain, Sft
from prep_assets.errors import CheckFailed
from prep_assets.extensions.blends.assets import MIXTURE, blend_verdict
from prep_assets.extensions.blends.store import BlendStore, open_blend
from prep_assets.extensions.selftest import mutations
from prep_assets.extensions.selftest.mutations import IDENTITY, MASK
from prep_assets.extensions.selftest.mutations import ROWS as INTEGRITY
from prep_assets.pipeline.asset import Store
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.documents import Text, documents_begin_with, prove_texts
from prep_assets.proofs.mask import Conversation, prove_identity, prove_masks
from prep_assets.proofs.mutations import Mutation
from prep_assets.proofs.tables import check_rows
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import PlainChat, Sample
from prep_assets.stores.shards import ATTENTION, STARTS, unsigned
from prep_assets.stores.table import TOKENS, Origins, Ragged, Table
from prep_assets.text.template import ChatTemplate, Renderer, marks_generated
from prep_assets.text.vocabulary import Vocabulary

# Trials of the selftest: a mutation, and how often its check caught it.

ROWS = 64
"""Rows that are copied from a stream."""
TRIES = 8
"""Rows that each mutation is applied to."""


class Trial(Struct, frozen=True):
    """The outcome of one mutation.

    Attributes:
        mutation: its name; ``""`` for the clean rows.
        check: the check that must fail; for clean rows, those that must pass.
        tried, caught: rows it was applied to, and how often the check failed. 0 tried: no row is suitable.
        shown: the first summary of the check.
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
    *extra: Any,
    what: str = "every check",
) -> list[Trial]:
    """Run every check on a clean subject, and the check of each mutation on mutated copies.

    Args:
        count: number of items in the subject that can be corrupted; 0 gives no trials.
        checks: by the names in `Mutation.caught_by`.
        extra: further arguments of mutations, after the subject and the index.
        what: label of the clean trial.
    """
    trials = [clean(what, [check(subject) for check in checks.values()])] if count else []
    for mutation in mutations if count else ():
        corrupted = [changed for at in chosen(count) if (changed := mutation.change(subject, at, *extra)) is not None]
        trials.append(tried(mutation.name, mutation.caught_by, [checks[mutation.caught_by](copy) for copy in corrupted]))
    return trials


def tried(name: str, check: str, verdicts: Sequence[Verdict]) -> Trial:
    """Return the trial of a mutation that was applied to several rows."""
    shown = verdicts[0].summary if verdicts else ""
    return Trial(name, check, len(verdicts), sum(not verdict.passed for verdict in verdicts), shown)


def clean(what: str, verdicts: Sequence[Verdict]) -> Trial:
    """Return the trial of clean rows."""
    failed = "; ".join(verdict.summary for verdict in verdicts if not verdict.passed)
    return Trial("", what, len(verdicts), sum(verdict.passed for verdict in verdicts), failed)


def chosen(count: int) -> range:
    """Return the indices of the rows that mutations are applied to, out of `count`."""
    return range(0, count, max(1, count // TRIES))


def stream_of(tokens: Sequence[Any], **arrays: Any) -> Table:
    """Return rows of token ids as a stream in memory, with further arrays."""
    ends = np.cumsum([len(ids) for ids in tokens])
    columns = {name: Ragged(values, ends) for name, values in {"tokens": np.concatenate(list(tokens)), **arrays}.items()}
    none = np.zeros(len(tokens), np.int32)
    return Table("", TOKENS, len(tokens), Origins(("",), none, none, np.arange(len(tokens))), columns)


T = TypeVar("T")
Judge = Callable[[Any], Verdict]


def first(items: Iterable[T], most: int = ROWS) -> list[T]:
    """Return the first items."""
    return list(islice(items, most))


def first_of(store: Store, stream: Table, pairs: Callable[[StoredRows], Iterable[T]] | None, most: int = ROWS) -> list[T]:
    """Return the first pairs of a stream that a check compares."""
    return [] if pairs is None else first((pair for rows in stored_rows(store, stream) for pair in pairs(rows)), most)


# Selftest of token rows with a mask: conversations, both sides of pairs, scored groups.

_TAGS = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")


def masked_trials(chats: Conversations) -> list[Trial]:
    """Corrupt every stream of a store of conversations."""
    trials, store = list[Trial](), chats.store
    for name in store.streams():
        rows = first(row for _, row in chats.rows(name))
        trials += _rows(rows, rows, store.vocabulary)
    return trials


def sft_trials(store: Store) -> list[Trial]:
    """Corrupt conversations, and the generation tags of their template where it has any."""
    template, chats = store.workspace.template(store.workspace.family(Sft)), Chats(store)
    marked, trials = template.training or template.source, masked_trials(chats)
    for stream in store.streams().values():
        trials += _file_trials(store, stream)
    options = MaskOptions.of(store.recipe)
    if template.renderer is not None:
        return trials + _renderer_trials(chats, template, template.renderer, options)
    if not marks_generated(marked):
        return trials
    spoiled = replace(template, training=everything_marked(marked))
    for name in store.streams():
        sources = first((record.source for record in chats.examples(name)), TRIES)
        samples = [chats.sample(source) if isinstance(source, PlainChat) else source for source in sources]
        tagged = [sample for sample in samples if sample.tokenized is None and derive(sample, options, template).tagged]
        verdicts = [_by_tags(sample, options, spoiled) for sample in tagged]
        trials.append(tried("tags of the template mark the question as well", MASK, verdicts))
    return trials


def _renderer_trials(chats: Chats, template: ChatTemplate, renderer: Renderer, options: MaskOptions) -> list[Trial]:
    """Corrupt the code that writes the chats of a template, and what it marks as generated."""
    trials = list[Trial]()
    for name in chats.store.streams():
        sources = first((record.source for record in chats.examples(name)), TRIES)
        samples = [chats.sample(source) if isinstance(source, PlainChat) else source for source in sources]
        derived = [(sample, derive(sample, options, template)) for sample in samples if sample.tokenized is None]
        for what, wrong, marks_only in renderer.corrupted():
            spoiled = replace(template, renderer=wrong, source=wrong.source)
            verdicts = [_by_code(sample, options, spoiled, whole.text) for sample, whole in derived if whole.tagged or not marks_only]
            trials.append(tried(what, MASK, verdicts))
    return trials


def _by_code(sample: Sample, options: MaskOptions, template: ChatTemplate, text: str) -> Verdict:
    try:
        return Verdict(True, derive(sample, options, template, rendered=text).text, {})
    except CheckFailed as error:
        return Verdict(False, str(error), {})


def _file_trials(store: Store, stream: Table) -> list[Trial]:
    """Corrupt what a stream says of the files of images and audio."""
    of_store = files_of(store)
    files = first(of_store.read_again(stream.images), TRIES)
    return trials_of(files, len(files), mutations.FILE_MUTATIONS, {INTEGRITY: of_store.compare}, what="files")


def _by_tags(sample: Sample, options: MaskOptions, template: ChatTemplate) -> Verdict:
    try:
        return Verdict(True, derive(sample, options, template).text, {})
    except CheckFailed as error:
        return Verdict(False, str(error), {})


def everything_marked(source: str) -> str:
    """Return a template whose tags enclose whole chats. Masks do not change, nor does their second derivation."""
    bare = _TAGS.sub(lambda tag: f"{{%{tag[1]} {'endif' if tag[2] else 'if true'} {tag[3]}%}}", source.removesuffix("\n"))
    return f"{{% generation %}}{bare}{{% endgeneration %}}"


def group_trials(store: Store) -> list[Trial]:
    """Corrupt scored groups: every mutation of rows on conversations, the border between prompt and response moved."""
    trials, identity = list[Trial](), partial(prove_identity, vocabulary=store.vocabulary)
    moved = Mutation("border of prompt and response moved", IDENTITY, lambda prompts, at: [replace(prompts[at], ids=prompts[at].ids[:-1])])
    for stream in streams_of(store):
        rows = first_of(store, stream, pairs_of(store, MASK)(store, stream))
        trials += _rows(rows, first_of(store, stream, pairs_of(store, IDENTITY)(store, stream)), store.vocabulary)
        prompts = first_of(store, stream, pairs_of(store, IDENTITY, 1)(store, stream))
        trials += trials_of(prompts, len(prompts), (moved,), {IDENTITY: identity}, what=IDENTITY)
    return trials


def _rows(rows: list[Conversation], renders: list[Conversation], vocabulary: Vocabulary) -> list[Trial]:
    def integrity(corrupted: Sequence[Conversation]) -> Verdict:
        loss, attended = unsigned(np.concatenate([row.mask for row in corrupted]))
        stream = stream_of([row.ids for row in corrupted], loss_mask=loss, **{ATTENTION: attended.view(np.uint8)})
        return check_rows(stream, vocabulary_size=vocabulary.size)

    checks: dict[str, Judge] = {
        MASK: lambda corrupted: prove_masks(corrupted, vocabulary),
        INTEGRITY: integrity,
        IDENTITY: lambda corrupted: _identity(renders, [row.ids for row in corrupted], vocabulary),
    }
    corruptions = (*mutations.MUTATIONS, *(mutations.ATTENTION_MUTATIONS if any((row.mask < 0).any() for row in rows) else ()))
    return trials_of(rows, len(rows), corruptions, checks, vocabulary)


def _identity(renders: Sequence[Conversation], rows: Sequence[Array], vocabulary: Vocabulary) -> Verdict:
    """Compare ids with their renders."""
    return prove_identity([replace(render, ids=ids) for render, ids in zip(renders, rows, strict=True)], vocabulary)


# Selftest of token rows without a mask: documents and prompts.


def document_trials(store: Store) -> list[Trial]:
    """Corrupt documents. Those with images, or cut for fill-in-the-middle, are skipped: their ids are not in text order."""
    vocabulary, family = store.vocabulary, store.workspace.family(Pretrain)
    bos, ended, trials = documents_begin_with(vocabulary, family.bos), family.append_eod, list[Trial]()
    options = {"eos_id": vocabulary.eos_id, "bos_id": bos, "ended": ended}
    for stream in streams_of(store):
        if documents := first_of(store, stream, masked_documents(store, stream)):
            unattended = mutations.ATTENTION_MASK_MUTATIONS if any((document.mask < 0).any() for document in documents) else ()
            checks: dict[str, Judge] = {MASK: masks_rule(store)}
            trials += trials_of(documents, len(documents), (*mutations.MASK_MUTATIONS, *unattended), checks, what=MASK)
        trials += _file_trials(store, stream)
        texts = first_of(store, stream, document_texts(store, stream))
        whole = {number: text for number, text in enumerate(texts) if not text.parts or STARTS in stream.columns}
        rows = [stream.record(number, "tokens") for number in whole]
        corruptions = mutations.DOCUMENT_MUTATIONS if ended else mutations.UNENDED_MUTATIONS

        def identity(corrupted: Sequence[Array], expected: Sequence[Text] = tuple(whole.values())) -> Verdict:
            inside = [ids[int(bos is not None) : len(ids) - ended] for ids in corrupted]
            return prove_texts([replace(text, ids=ids) for text, ids in zip(expected, inside, strict=True)], vocabulary)

        trials += _token_trials(rows, corruptions, identity, vocabulary, **options)
    return trials


def prompt_token_trials(store: Store) -> list[Trial]:
    """Corrupt tokenized prompts."""
    trials: list[Trial] = []
    for stream in streams_of(store):
        renders = first_of(store, stream, pairs_of(store, IDENTITY)(store, stream))
        identity = partial(_identity, renders, vocabulary=store.vocabulary)
        trials += _token_trials([render.ids for render in renders], mutations.PROMPT_TOKEN_MUTATIONS, identity, store.vocabulary)
    return trials


def _token_trials(
    rows: Sequence[Array], mutations: Sequence[Mutation], identity: Judge, vocabulary: Vocabulary, **options: Any
) -> list[Trial]:
    def integrity(ids: Sequence[Array]) -> Verdict:
        return check_rows(stream_of(ids), vocabulary_size=vocabulary.size, **options)

    return trials_of(rows, len(rows), mutations, {IDENTITY: identity, INTEGRITY: integrity}, vocabulary.eos_id, vocabulary.size)


# Selftest of blends: an item used twice, lost, of nowhere; domains one after another; a border of phases moved.


def blend_trials(store: Store) -> list[Trial]:
    """Corrupt the order of a blend."""
    blend = open_blend(store.directory)
    domain, item = np.asarray(blend.domain), np.asarray(blend.item)
    number, first = np.arange(len(blend)), blend.ends[0]
    twice, counts = np.flatnonzero(domain == domain[0])[:2], np.sort(np.bincount(domain[:first]))
    corrupted: list[tuple[str, BlendStore]] = [
        ("an item of nowhere", replace(blend, item=np.where(number == len(blend) // 2, np.iinfo(item.dtype).max, item))),
        ("an item lost", replace(blend, domain=domain[1:], item=item[1:], ends=tuple(end - 1 for end in blend.ends))),
    ]
    if len(twice) == 2:
        corrupted.append(("an item used twice", replace(blend, item=np.where(number == twice[1], item[twice[0]], item))))
    if len(counts) > 1 and counts[-2] > 2 * len(blend.domains) + 4:
        order = np.concatenate([np.argsort(domain[:first], kind="stable"), number[first:]])
        corrupted.append(("domains one after another", replace(blend, domain=domain[order], item=item[order])))
    if len(blend.ends) > 1 and first > 4 * len(blend.domains):
        corrupted.append(("a border of phases moved", replace(blend, ends=(first // 2, *blend.ends[1:]))))
    trials = [clean("the stored order", [blend_verdict(store, blend)])]
    return trials + [tried(name, MIXTURE.name, [blend_verdict(store, changed)]) for name, changed in corrupted]
