"""What checks compare stores with: the sources, read again, and what they must have become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.images_again import images_again
from prep_assets.assets.checks.message_chats import MessageChats
from prep_assets.assets.checks.stored_rows import Rows, source_records, stored_rows
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.reading.pinned import domain_of
from prep_assets.assets.stage import Store
from prep_assets.config.models import Domain, Pretrain, Sft
from prep_assets.errors import Refused, StoreError
from prep_assets.proofs.answers import examples_again
from prep_assets.proofs.identity import Conversation
from prep_assets.proofs.inline_reasoning import read_again
from prep_assets.proofs.message_rows import MessageRows
from prep_assets.proofs.plain_forms import PlainDerivation
from prep_assets.proofs.starts import documents_begin_with
from prep_assets.proofs.tokenized import left_of_tokenized, tokenized_again
from prep_assets.proofs.trained_texts import MaskOptions, derive
from prep_assets.proofs.truncated import Left, Truncation, left_of
from prep_assets.samples import DOCUMENT, IMAGE, PlainChat, Sample, Turn
from prep_assets.schemas.reader import Reader
from prep_assets.stores.tokens import TokenStore
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.control_text import control_pattern, treat
from prep_assets.tokenization.vocabulary import Vocabulary

Example = tuple[int, str, Sample | PlainChat]
"""Number in the stream, id, and source of a record: as it is rendered, or in columns as its row has it, which is yet to be read."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Some records of a stream.

    Attributes:
        numbers: of each in the stream, ascending.
        sources: as of an `Example`.
        identity: gives the id of one of them.
    """

    numbers: Sequence[int]
    sources: Sequence[Sample | PlainChat]
    identity: Callable[[int], str]

    def each(self) -> Iterator[Example]:
        """One by one."""
        return zip(self.numbers, map(self.identity, range(len(self.numbers))), self.sources, strict=True)


def sample_of(convert: Reader, payload: Mapping[str, Any], identity: str) -> Sample:
    """The sample that a record of a store came from.

    Raises:
        StoreError: the schema gives none, so this record cannot be what the store was made from.
    """
    [found] = chats_of(convert, [payload], lambda _: identity)
    return found.sample() if isinstance(found, PlainChat) else found


def chats_of(convert: Reader, payloads: Sequence[Mapping[str, Any]], identity: Callable[[int], str]) -> list[Sample | PlainChat]:
    """The same of several, in columns where a row is nothing but messages of a role and a text; `identity` gives the id of each."""
    found = convert.rows(payloads)
    return [each if type(each) is PlainChat else _sample_or_fault(each, identity(at)) for at, each in enumerate(found)]


def _sample_or_fault(found: object, identity: str) -> Sample | PlainChat:
    if isinstance(found, Refused):
        raise StoreError(f"the store holds {identity}, which its schema refuses: {found}") from found
    if not isinstance(found, Sample | PlainChat):
        raise StoreError(f"the store holds {identity}, which its schema reads as a {type(found).__name__}")
    return found


@dataclass(frozen=True, slots=True)
class Rules:
    """How records of conversations are derived anew.

    Attributes:
        derivation: what each must have become, before truncation.
        truncation: how long they are cut.
        read: what a build makes of a chat in columns before it renders it.
    """

    derivation: PlainDerivation
    truncation: Truncation
    vocabulary: Vocabulary
    read: Callable[[PlainChat], Sample]

    def left(self, example: Sample | PlainChat, length: int) -> Left:
        """What a record must be, of its source and of how many tokens it has."""
        sample = self.read(example) if isinstance(example, PlainChat) else example
        if sample.tokenized is not None:
            return left_of_tokenized(sample, self.truncation, self.derivation, self.vocabulary)
        return left_of(sample, length, self.truncation, self.derivation, self.vocabulary)


# -- documents with images --------------------------------------------------------------------------------------------------------------


def document_conversations(store: Store, stream: TokenStore, given: Iterator[Rows] | None = None) -> Iterator[Conversation]:
    """Each document of a pretraining stream with images, with a fresh render of its source, ended as `append_eod` says. The begin-of-text
    token, which `row_integrity` checks, is left out."""
    family = store.workspace.family(Pretrain)
    domain, vocabulary = domain_of(family, store.partition), store.vocabulary
    convert = converter(domain, Sample)
    special = {"eos_token": vocabulary.special["eos_token"]} if family.append_eod else {}
    again, image = images_again(store), store.workspace.image_placeholder(family)
    template = ChatTemplate("none", "", special, control=tuple(sorted(vocabulary.control)), image=image)
    begin = int(documents_begin_with(vocabulary, family.bos) is not None)
    for number, identity, payload in source_records(store, store.partition, stream, given=given):
        turns = again(sample_of(convert, payload, identity)).turns
        document = Sample((Turn(DOCUMENT, tuple(region for turn in turns for region in turn.regions)),))
        yield fresh_render(identity, stream.record(number, "tokens")[begin:], document, template)


# -- SFT --------------------------------------------------------------------------------------------------------------------------------


def sft_reading(store: Store) -> Callable[[Sample | PlainChat], Sample]:
    """What a build makes of the example of a row before it renders it: reasoning told apart, control tokens taken out where they are."""
    recipe, shown = store.recipe, store.workspace.template(store.workspace.family(Sft)).shows_thinking
    pattern = control_pattern(store.vocabulary.control) if recipe["special_in_content"] == "strip" else None
    again = images_again(store)

    def read(example: Sample | PlainChat) -> Sample:
        whole = example.sample() if isinstance(example, PlainChat) else example
        return treat(read_again(again(whole), recipe, shown=shown), pattern, "strip")[0]

    return read


def sft_blocks(
    store: Store, stream: TokenStore, only: Sequence[int] | None = None, given: Iterator[Rows] | None = None
) -> Iterator[Examples]:
    """The records of an SFT stream by the block; `only` some, and those that come from the same rows of the source; `given` as in `stored_rows`."""
    chosen: Sequence[int] | npt.NDArray[np.int64] = range(len(stream))
    wanted = stream
    if only is not None:
        chosen = _with_siblings(stream, only)
        wanted = replace(stream, ends=stream.ends[chosen], file=stream.file[chosen], row=stream.row[chosen])
    domain = domain_of(store.family, store.partition)
    convert, read = converter(domain, Sample), sft_reading(store)
    if store.recipe["expand"] == "turns":
        yield from _expanded(store, convert, source_records(store, store.partition, wanted, several=True, given=given), chosen)
        return

    def read_all(payloads: Sequence[Mapping[str, Any]], identity: Callable[[int], str]) -> list[Sample | PlainChat]:
        return [
            each if isinstance(each, PlainChat) else read(_tokenized_again(each, domain, payload))
            for each, payload in zip(chats_of(convert, payloads, identity), payloads, strict=True)
        ]

    for some in stored_rows(store, store.partition, wanted, given=given):
        found = MessageChats.of(convert, some.payloads, some.identity, read_all) if isinstance(some.payloads, MessageRows) else None
        sources = read_all(some.payloads, some.identity) if found is None else found
        yield Examples(list(map(int, chosen[some.first : some.first + len(sources)])), sources, some.identity)


def _expanded(
    store: Store, convert: Reader, rows: Iterator[tuple[int, str, Mapping[str, Any]]], chosen: Sequence[int] | npt.NDArray[np.int64]
) -> Iterator[Examples]:
    """The records of each row, of which each answer may be one."""
    recipe, template, read = store.recipe, store.workspace.template(store.workspace.family(Sft)), sft_reading(store)
    domain = domain_of(store.family, store.partition)
    for identity, listed in groupby(rows, key=itemgetter(1)):
        numbers, _, payloads = zip(*listed, strict=True)
        sample = read(_tokenized_again(sample_of(convert, payloads[0], identity), domain, payloads[0]))
        plain = partial(plain_render, template=template)
        samples = examples_again(sample, recipe, plain) if sample.tokenized is None else [sample]
        if len(samples) != len(numbers):
            raise StoreError(f"{identity} is {len(numbers)} records of the store, and must be {len(samples)}")
        names = [identity] if len(samples) == 1 else [f"{identity}, answer {part + 1} of {len(samples)}" for part in range(len(samples))]
        yield Examples([int(chosen[number]) for number in numbers], samples, names.__getitem__)


def _tokenized_again(sample: Sample, domain: Domain, payload: Mapping[str, Any]) -> Sample:
    """A sample that brings its ids, with those that a second reading of its row gives."""
    again = tokenized_again(domain.schema_name, payload, domain.options) if sample.tokenized is not None else ()
    if sample.tokenized is None or not again:
        return sample
    return replace(sample, tokenized=replace(sample.tokenized, ids=tuple(again[0]), weights=tuple(again[1])))


def _with_siblings(stream: TokenStore, only: Sequence[int]) -> npt.NDArray[np.int64]:
    """Records, and all others that come from their source rows."""
    rows = np.cumsum(stream.begins_row)
    return np.flatnonzero(np.isin(rows, rows[np.asarray(only, np.int64)]))


def plain_render(sample: Sample, template: ChatTemplate) -> str:
    """The text of a conversation."""
    return derive(sample, MaskOptions(), template).text


def sft_rules(store: Store) -> Rules:
    """What each conversation of an SFT store must have become."""
    recipe, template = store.recipe, store.workspace.template(store.workspace.family(Sft))
    options = MaskOptions(**{key: recipe[key] for key in MaskOptions.__dataclass_fields__})
    derivation = PlainDerivation(options, template, typed_controls=recipe["special_in_content"] == "allow")
    limit = recipe["preprocessing"]["max_seq_len"]
    truncation = Truncation(recipe["truncation"], limit, recipe["truncation_keeps_stop"], recipe["truncation_keeps"])
    return Rules(derivation, truncation, store.vocabulary, sft_reading(store))


def fresh_render(identity: str, ids: Any, sample: Sample, template: ChatTemplate, *, allowed: bool = False) -> Conversation:
    """A record with a fresh render of its source.

    Args:
        allowed: control tokens that are typed in the content are control tokens.
    """
    derived = derive(sample, MaskOptions(), template, typed_controls=allowed)
    return Conversation(identity, ids, derived.text, derived.controls, derived.typed)


def shown_text(turn: Turn, image: str) -> str:
    """The text of a turn as it is trained on, with `image` for each of its images that has no placeholder of its own."""
    return "".join(region.placeholder or image if region.kind == IMAGE else region.text for region in turn.regions if not region.drop)
