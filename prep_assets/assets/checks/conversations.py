"""Checks of tokenized conversations: chats, and the sides of preference pairs. Both proofs of one come of one reading of its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.every_store import cuts_counted, together
from prep_assets.assets.checks.expected import Examples, Rules, sft_blocks, sft_rules
from prep_assets.assets.checks.expected_pairs import pair_examples, pair_rules
from prep_assets.assets.checks.message_chats import MessageChats
from prep_assets.assets.checks.parts import Unsound
from prep_assets.assets.checks.stored_rows import Rows
from prep_assets.assets.checks.verification import Derivation, Reader
from prep_assets.proofs.chat_columns import Chat, ChatColumns
from prep_assets.proofs.identity import Conversation, IdentityProof
from prep_assets.proofs.mask import MaskProof, Row
from prep_assets.proofs.plain_blocks import Claims, PlainBlocks
from prep_assets.proofs.plain_samples import roles_and_texts
from prep_assets.proofs.shaped_samples import outlined
from prep_assets.proofs.truncated import Left
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import PlainChat, Sample
from prep_assets.stores.tokens import TokenStore

BLOCK_TOKENS = 1 << 20
Proofs = tuple[MaskProof, IdentityProof]
"""Of a stream."""
Counted = tuple[tuple[int, int, frozenset[str], int, int], tuple[int, int, int]]
"""What `MaskProof.proven` and `IdentityProof.proven` count of a stream."""


class Chats(Derivation):
    """What the chats of an SFT store must have become."""

    names = ("mask_alignment", "tokenization_identity")

    def rules(self) -> Rules:
        """How each is derived anew."""
        return sft_rules(self.store)

    def examples(self, name: str, stream: TokenStore, only: Sequence[int] | None = None) -> Iterator[Examples]:
        """The records of a stream with their sources; `only` some, and those that come from the same rows."""
        return sft_blocks(self.store, stream, only)

    def rows(self, name: str, only: Sequence[int] | None = None) -> Iterator[tuple[int, Row]]:
        """Number of each such record, and what must be trained of it."""
        stream = self.store.streams()[name]
        for number, identity, left in self._left(name, stream, only):
            yield number, left.row(identity, stream.record(number, "tokens"), stream.weights(number))

    def renders(self, name: str) -> Iterator[Conversation]:
        """Each record with a fresh render of its source."""
        stream = self.store.streams()[name]
        for number, identity, left in self._left(name, stream, None):
            yield left.conversation(identity, stream.record(number, "tokens"))

    def _left(self, name: str, stream: TokenStore, only: Sequence[int] | None) -> Iterator[tuple[int, str, Left]]:
        rules, lengths = self.rules(), stream.lengths
        for some in self.examples(name, stream, only):
            for number, identity, source in some.each():
                yield number, identity, rules.left(source, int(lengths[number]))

    def readers(self) -> Sequence[Reader]:
        """Both proofs of each stream."""
        rules = self.rules()
        return [partial(self._read, stream, rules) for stream in self.store.streams().values()]

    def _read(self, stream: TokenStore, rules: Rules, rows: Iterator[Rows]) -> Proofs:
        return _proven(stream, sft_blocks(self.store, stream, given=rows), rules, self.store.recipe["reasoning_tags"])

    def verdicts(self, found: Sequence[Proofs]) -> Mapping[str, Verdict]:
        """The verdicts of the proofs of all streams."""
        masks, identities = (together(proof.verdict() for proof in listed) for listed in zip(*found, strict=True))
        return dict(zip(self.names, (masks, cuts_counted(self.store, identities)), strict=True))

    def part(self, found: Sequence[Proofs]) -> list[Counted]:
        """Their figures, where all hold."""
        if any(masks.worst or identities.worst for masks, identities in found):
            raise Unsound
        return [
            (
                (masks.checked, masks.trained, frozenset(masks.stops), masks.tagged, masks.unattended),
                (identities.tokenized, identities.typed, identities.taken),
            )
            for masks, identities in found
        ]

    def joined(self, parts: Sequence[Sequence[Counted]]) -> Sequence[Proofs]:
        """The figures of all parts."""
        proofs = [(MaskProof(self.store.vocabulary), IdentityProof(self.store.vocabulary)) for _ in self.store.streams()]
        for part in parts:
            for (masks, identities), (trained, tokenized) in zip(proofs, part, strict=True):
                masks.proven(*trained)
                identities.proven(*tokenized)
        return proofs


class Sides(Chats):
    """What the sides of preference pairs must have become, of the lines that they are from."""

    def rules(self) -> Rules:
        """How each is derived anew."""
        return pair_rules(self.store)

    def examples(self, name: str, stream: TokenStore, only: Sequence[int] | None = None) -> Iterator[Examples]:
        """The records of a side with their lines; `only` some."""
        return pair_examples(self.store, name, stream, only)

    def readers(self) -> Sequence[Reader]:
        """None: rows are not what it reads."""
        return ()

    def verdicts(self, _: Sequence[Proofs]) -> Mapping[str, Verdict]:
        """The verdicts on both sides."""
        rules, tags, streams = self.rules(), self.store.recipe["reasoning_tags"], self.store.streams()
        return super().verdicts([_proven(stream, self.examples(side, stream), rules, tags) for side, stream in streams.items()])


def _proven(stream: TokenStore, examples: Iterable[Examples], rules: Rules, tags: Iterable[Iterable[str]]) -> Proofs:
    """Both proofs of a stream. Chats that hold one of the `tags` of reasoning are proven one by one."""
    vocabulary = rules.vocabulary
    masks, identities = MaskProof(vocabulary), IdentityProof(vocabulary)
    plain = PlainBlocks(rules.derivation, masks, identities, (*vocabulary.control, *(tag for pair in tags for tag in pair)))
    lengths = stream.lengths
    for block in _blocks(lengths, examples):
        first, last = block[0].numbers[0], block[-1].numbers[-1]
        tokens = slice(int(stream.ends[first] - lengths[first]), int(stream.ends[last]))
        ids, mask = np.asarray(stream.arrays["tokens"][tokens]), stream.weights(tokens)
        sizes = lengths[first : last + 1]
        whole = np.fromiter(map(rules.truncation.leaves_whole, sizes.tolist()), bool, len(sizes))
        chats = ChatColumns.joined([_in_columns(each.sources) for each in block]).only(whole)
        proven = plain.prove(chats, Claims(sizes, ids, mask))
        ends, rows, conversations = np.cumsum(sizes).tolist(), list[Row](), list[Conversation]()
        for at in np.flatnonzero(~proven).tolist():
            identity, source = _record(block, at)
            left, own = rules.left(source, int(sizes[at])), slice(ends[at] - int(sizes[at]), ends[at])
            rows.append(left.row(identity, ids[own], mask[own]))
            conversations.append(left.conversation(identity, ids[own]))
        if rows:
            masks.add(rows)
            identities.add(conversations)
    return masks, identities


def _blocks(lengths: npt.NDArray[np.int64], examples: Iterable[Examples]) -> Iterator[list[Examples]]:
    """Consecutive records of at most `BLOCK_TOKENS` tokens, unless some that came together have more."""
    block: list[Examples] = []
    size = 0
    for some in examples:
        more = int(lengths[some.numbers[0] : some.numbers[-1] + 1].sum())
        if block and size + more > BLOCK_TOKENS:
            yield block
            block, size = [], 0
        block.append(some)
        size += more
    if block:
        yield block


def _record(block: Iterable[Examples], at: int) -> tuple[str, Sample | PlainChat]:
    """The id and the source of a record of a block."""
    for some in block:
        if at < len(some.numbers):
            break
        at -= len(some.numbers)
    return some.identity(at), some.sources[at]


def _in_columns(sources: Sequence[Sample | PlainChat]) -> ChatColumns:
    return sources.columns if isinstance(sources, MessageChats) else ChatColumns.of(list(map(_columns, sources)))


def _columns(example: Sample | PlainChat) -> Chat | None:
    """A conversation as its form and its texts; `None` for what has to be proven by itself."""
    if isinstance(example, PlainChat):
        return example
    found = roles_and_texts(example)
    return outlined(example) if found is None else PlainChat(found[0], tuple(found[1]))
