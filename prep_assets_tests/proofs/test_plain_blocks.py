"""What is proven by the block is proven by the single row as well, and nothing that is wrong is proven by the block."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.extensions.selftest.mutations import MUTATIONS
from prep_assets.proofs import chat_blocks as module
from prep_assets.proofs import words
from prep_assets.proofs.chat_blocks import PlainBlocks, PlainDerivation, answer_chat, strings_looked_for
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.mask import Conversation, IdentityProof, Left, MaskProof, prove_identity, prove_masks
from prep_assets.proofs.mutations import Mutation
from prep_assets.proofs.words import ByteTable, joined
from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, THINKING, USER, PlainChat, Region, Sample, Tokenized, Turn, changed, turn
from prep_assets.text.chats import ChatColumns, plain_chat
from prep_assets.text.engines import choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.corpus.chats import PLAIN_TEXTS as TEXTS
from prep_assets_tests.masks.bound import CONTROL, SHIPPED, Bound, bind, bind_source, run
from prep_assets_tests.proofs.blocks import claims_of
from prep_assets_tests.proofs.shipped import spaced

TALKS = [
    PlainChat((USER, ASSISTANT), ("What is it?", "It is é and 中 at 50% %b.")),
    PlainChat((SYSTEM, USER, ASSISTANT, USER, ASSISTANT), ("Be brief.", "Hi", "Hello", "So?", "So it is.")),
    PlainChat((USER, ASSISTANT), (" Hi ", "\tHello\n")),
]


TELLS_FIRSTS = module.Firsts.__call__


@pytest.fixture(autouse=True)
def no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """No chat is left to the proofs of single rows because its hash says so, or because it is the first of its form."""
    monkeypatch.setattr(module, "ONE_IN", 1 << 40)
    monkeypatch.setattr(module.Firsts, "__call__", lambda *_: False)


def rows_of(bound: Bound, chats: Sequence[PlainChat], options: MaskOptions) -> tuple[list[PlainChat], list[Conversation]]:
    """The chats that a build keeps, with what it stores of them and what single rows are proven by."""
    found = run(bound, [chat.sample() for chat in chats], options)
    kept, rows = [], []
    for at, number in enumerate(found.kept):
        derived = derive(chats[number].sample(), options, bound.template)
        kept.append(chats[number])
        rows.append(Conversation(str(at), found.ids(at), found.loss(at), Left(derived, derived.expected)))
    return kept, rows


def proven(
    bound: Bound, options: MaskOptions, chats: Sequence[PlainChat | None], rows: Sequence[Conversation]
) -> tuple[list[bool], MaskProof, int]:
    masks, identities = MaskProof(bound.vocabulary), IdentityProof(bound.vocabulary)
    derivation = PlainDerivation(options, bound.template, typed_controls=False)
    claims = claims_of(bound, [row.ids for row in rows], [row.mask for row in rows])
    found = PlainBlocks(derivation, masks, identities, ["</think>"]).prove(chats, claims)
    return found.tolist(), masks, identities.numbers["rows_tokenized_again"]


def as_sentence_piece(name: str) -> Bound:
    """A template with a tokenizer that puts a space in front of the first word."""
    vocabulary = spaced()
    vocabulary.backend.add_special_tokens([*CONTROL[name], *vocabulary.special.values()])
    vocabulary = Vocabulary("spaced", vocabulary.backend, vocabulary.special, None)
    return Bound(vocabulary, choose_engine(vocabulary), load_template(name, vocabulary))


@pytest.mark.parametrize(
    ("name", "bind"), [*((name, partial(bind, SHIPPED)) for name in ("alpaca", "chatml", "llama3", "plain")), ("chatml", as_sentence_piece)]
)
def test_sound_rows_are_proven_and_counted(name: str, bind: Callable[[str], Bound]) -> None:
    bound, options = bind(name), MaskOptions()
    chats, rows = rows_of(bound, TALKS, options)
    found, masks, tokenized = proven(bound, options, chats, rows)
    assert found == [True] * len(TALKS)
    assert masks.verdict() == prove_masks(rows, bound.vocabulary)
    assert tokenized == prove_identity(rows, bound.vocabulary).numbers["rows_tokenized_again"]


def test_rows_that_are_trained_from_their_first_token_on() -> None:
    bound, options = bind_source("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"), MaskOptions(mask_default="train")
    chats, rows = rows_of(bound, TALKS, options)
    assert all(row.mask[0] == 1 for row in rows) and proven(bound, options, chats, rows)[0] == [True] * len(TALKS)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
@pytest.mark.parametrize("name", ["chatml", "plain"])
def test_a_corrupted_row_is_not_proven(name: str, mutation: Mutation) -> None:
    bound, options = bind(SHIPPED, name), MaskOptions()
    chats, rows = rows_of(bound, TALKS, options)
    changed = mutation.change(rows, 1, bound.vocabulary)
    if changed is not None:
        same = [old.ids is new.ids and old.mask is new.mask for old, new in zip(rows, changed, strict=True)]
        assert proven(bound, options, chats, changed)[0] == same
        assert not all(same)


@pytest.mark.parametrize(("owner", "name"), [(PlainBlocks, "_ids_agree"), (module, "_bytes_agree")])
def test_ids_and_bytes_are_compared_each_by_itself(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, options = bind(SHIPPED, "chatml"), MaskOptions()
    chats, rows = rows_of(bound, TALKS, options)
    ids, table = rows[1].ids.copy(), bound.vocabulary.token_bytes or pytest.fail()
    at = next(at for at in np.flatnonzero(rows[1].mask == 0).tolist() if len(table[ids[at]]) == 1)
    ids[at] = next(number for number, own in enumerate(table) if len(own) == 1 and number != ids[at])
    monkeypatch.setattr(owner, name, lambda *given: np.ones(len(given[-1].lengths), bool))
    assert proven(bound, options, chats, [rows[0], replace(rows[1], ids=ids), rows[2]])[0] == [True, False, True]


@pytest.mark.parametrize("part", ["ids", "mask"])
@pytest.mark.parametrize("place", [0, 1, 7, -1])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_wrong_token_is_that_of_its_row(number: int, place: int, part: str, bound: Bound, blocks: PlainBlocks) -> None:
    """Of ids whose bytes are right, and of a mask whose ids are."""
    chats, rows = rows_of(bound, TALKS, MaskOptions())
    claims = claims_of(bound, [row.ids for row in rows], [row.mask for row in rows])
    changed, at = getattr(claims, part).copy(), int(claims.begins[number]) + place % int(claims.lengths[number])
    changed[at] = 1 - changed[at] if part == "mask" else changed[at] + 1
    wrong: dict[str, Any] = {part: changed}
    assert blocks.prove(chats, replace(claims, **wrong)).tolist() == [each != number for each in range(3)]
    assert (blocks._masks.numbers["rows_checked"], blocks._identities.numbers["rows_tokenized_again"]) == (2, 2)
    assert blocks._masks.numbers["trained_tokens"] == sum(int(row.mask.sum()) for at, row in enumerate(rows) if at != number)


SPACED = """{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}<think>\n  \n</think>\n{% endif %}{{ m.content
}}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"""
"""What a model goes on from ends amid the white space that one token holds."""


def test_a_token_across_the_beginning_of_a_stretch() -> None:
    bound, options = bind_source(SPACED), MaskOptions()
    chats, rows = rows_of(bound, TALKS[:2], options)
    first = int(np.flatnonzero(rows[0].mask)[0])
    assert rows[0].left.expected[0].text.startswith("  \n</think>")
    assert bound.vocabulary.decode(rows[0].ids[first : first + 2]) == "\n  \n"
    assert proven(bound, options, chats, rows)[0] == [True, True]
    for part, weight in ((slice(first - 1, first), 1.0), (slice(first, first + 3), 0.0), (slice(-1, None), 1.0)):
        mask = rows[0].mask.copy()
        mask[part] = weight
        assert proven(bound, options, chats, [replace(rows[0], mask=mask), rows[1]])[0] == [False, True]
    assert proven(bound, options, chats, [replace(rows[0], mask=rows[0].mask * 0.5), rows[1]])[0] == [False, True]


@pytest.mark.parametrize("name", ["chatml", "vicuna", "spaced"])
def test_whatever_is_proven_by_the_block_is_proven_alone(name: str) -> None:
    bound, options = bind_source(SPACED) if name == "spaced" else bind(SHIPPED, name), MaskOptions(train_on_eos="last")

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6), st.integers(0, 1 << 20), st.booleans())
    def check(texts: list[tuple[str, str]], where: int, in_mask: bool) -> None:
        chats, rows = rows_of(bound, [PlainChat((USER, ASSISTANT), each) for each in texts], options)
        if not rows:
            return
        number = where % len(rows)
        row = rows[number]
        changed = {"ids": row.ids.copy(), "mask": row.mask.copy()}
        changed["mask" if in_mask else "ids"][where % len(row.ids)] = 1 - row.mask[where % len(row.ids)] if in_mask else 7
        rows[number] = Conversation(row.id, changed["ids"], changed["mask"], row.left)
        found = proven(bound, options, chats, rows)[0]
        for is_proven, each in zip(found, rows, strict=True):
            assert not is_proven or (prove_masks([each], bound.vocabulary).passed and prove_identity([each], bound.vocabulary).passed)

    check()


# -- part by part -----------------------------------------------------------------------------------------------------------------------


ASKED = TALKS[0].roles


@pytest.fixture(scope="module")
def bound() -> Bound:
    return bind(SHIPPED, "chatml")


@pytest.fixture
def blocks(bound: Bound) -> PlainBlocks:
    masks = MaskProof(bound.vocabulary)
    derivation = PlainDerivation(MaskOptions(), bound.template, typed_controls=False)
    return PlainBlocks(derivation, masks, IdentityProof(bound.vocabulary), ["</think>"])


def test_the_first_chat_of_each_form_is_derived_by_itself_as_well(blocks: PlainBlocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.Firsts, "__call__", TELLS_FIRSTS)
    chats = [PlainChat(roles, ("a",) * len(roles)) for roles in (ASKED, ASKED, (SYSTEM, *ASKED), ASKED, (SYSTEM, *ASKED))]
    for alone in ([True, False, True, False, False], [False] * 5):
        assert (blocks._assigned(ChatColumns.of(chats))[1] < 0).tolist() == alone


def test_which_chats_are_derived_by_themselves_as_well(blocks: PlainBlocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ONE_IN", 3)
    chats = [PlainChat(ASKED, ("b", f"{number} \u00e9")) for number in range(40)]
    alone = [zlib.crc32(chat.texts[-1].encode()) % 3 == 0 for chat in chats]
    assert (blocks._assigned(ChatColumns.of(chats))[1] < 0).tolist() == alone and {*alone} == {True, False}


# -- Which samples are one text a turn with nothing beside --------------------------------------------------------------------------------

CHAT = Sample((turn(USER, "Why?"), turn(ASSISTANT, "So.")))


@pytest.mark.parametrize(
    "altered",
    [
        {"tools": ({"name": "x"},)},
        {"documents": ({"text": "x"},)},
        {"template_options": {"x": 1}},
        {"label": False},
        {"tokenized": Tokenized((1,), (1.0,))},
    ],
)
def test_something_beside_the_turns(altered: dict[str, Any]) -> None:
    assert plain_chat(changed(CHAT, **altered)) is None
    assert answer_chat(changed(answered(), **altered)) is None


@pytest.mark.parametrize(
    "odd",
    [
        Turn(USER, ()),
        Turn(USER, (Region(TEXT, "a"), Region(TEXT, "b"))),
        Turn(USER, (Region(THINKING, "a"),)),
        turn(USER, "a", loss_weight=1.0),
        Turn(USER, (Region(TEXT, "a", drop=True),)),
        Turn(USER, (Region(TEXT, "a", attend=False),)),
        Turn(USER, (Region(TEXT, "a"),), name="Ada"),
        Turn(USER, (Region(TEXT, "a"),), tool_call_id="1"),
    ],
)
@pytest.mark.parametrize("at", [0, 1])
def test_a_turn_that_is_more_than_a_text(odd: Turn, at: int) -> None:
    turns = list(CHAT.turns)
    turns[at] = odd
    assert plain_chat(Sample(tuple(turns))) is None


def answered(first: float | None = 0.0, last: float | None = 1.0, role: str = ASSISTANT) -> Sample:
    return Sample((turn(USER, "Why?", loss_weight=first), turn(role, "So.", loss_weight=last)))


# -- Strings that a template looks for, and those that it only writes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("{{ '<<a>>' + m.content }}", ()),
        ("{% for m in ms if '<<b>>' in m %}{{ '<<a>>' }}{% endfor %}", ("<<b>>",)),
        ("{% if '<<b>>' in m.content %}{{ '<<a>>' }}{% else %}{{ '<<c>>' }}{% endif %}", ("<<b>>",)),
        ("{% if '<<b>>' in m.content %}{{ '<<a>>' }}{% elif m.role %}{{ '<<c>>' }}{% endif %}", ("<<b>>",)),
        ("{{ '<<a>>' if '<<b>>' in m.content }}", ("<<b>>",)),
        ("{{ '<<a>>' }}{% if m.content.startswith('<<a>>') %}{% endif %}", ("<<a>>",)),
        ("{{ m.content.replace('<<a>>', '<<b>>') }}", ("<<a>>", "<<b>>")),
        ("{{ '<<a>>' * 2 }}", ("<<a>>",)),
        ("{% generation %}{{ '<<a>>' ~ m.content }}{% endgeneration %}", ()),
        ("{% macro x() %}{{ caller() in m }}{% endmacro %}{% call x() %}{{ '<<a>>' }}{% endcall %}", ("<<a>>",)),
        ("{% set x = '<<a>>' %}", ("<<a>>",)),
        ("{% macro x() %}{{ '<<a>>' }}{% endmacro %}{{ x() in m.content }}", ("<<a>>",)),
    ],
)
def test_strings_that_a_template_only_writes_are_not_looked_for(source: str, written: tuple[str, ...]) -> None:
    assert strings_looked_for(source) == written


@pytest.mark.parametrize("narrow", [1 << 31, 99, 20, 0])
def test_tokens_are_bytes_where_a_store_has_many(bound: Bound, narrow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "NARROW", narrow)
    vocabulary, table = bound.vocabulary, ByteTable(bound.vocabulary)
    ids = np.array(vocabulary.backend.encode("So it is é, 中 at 50%.", add_special_tokens=False).ids, np.uint16)
    assert not table.is_ready(vocabulary.size) and table.take(ids) is None
    assert table.is_ready(1)
    data, places = table.take(ids) or pytest.fail("it is ready")
    assert data == "So it is é, 中 at 50%.".encode() and [places[0], places[-1], len(places)] == [0, len(data), len(ids) + 1]
    parts = [table.bytes_of(part) for part in np.split(ids, [2, 5])]
    assert joined(parts).data == data and joined(parts).places.tolist() == places.tolist()
    assert joined(parts).places.dtype == places.dtype == (np.int32 if narrow > len(data) else np.int64)


def test_claims_of_some_chats(bound: Bound) -> None:
    """Of chats between others, the tokens are theirs, and so is where these stand among all."""
    ids = [np.arange(first, first + count) for first, count in ((5, 3), (20, 1), (40, 4), (60, 2))]
    claims = claims_of(bound, ids, [each % 2 for each in ids])
    some = claims.of(np.array([True, False, True, True]))
    assert some.lengths.tolist() == [3, 4, 2] and some.begins.tolist() == [0, 4, 8]
    assert some.ids.tolist() == np.concatenate([ids[0], ids[2], ids[3]]).tolist() and (some.mask == some.ids % 2).all()
    assert claims.of(np.ones(4, bool)) is claims and some.spelled is claims.spelled
