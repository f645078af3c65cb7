"""What is proven by the block is proven by the single row as well, and nothing that is wrong is proven by the block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.proofs import plain_forms
from prep_assets.proofs.identity import Conversation, IdentityProof, prove_identity
from prep_assets.proofs.mask import MaskProof, Row, prove_masks
from prep_assets.proofs.mutations import MUTATIONS, Mutation
from prep_assets.proofs.plain_blocks import Claims, PlainBlocks
from prep_assets.proofs.plain_forms import PlainDerivation
from prep_assets.proofs.trained_texts import MaskOptions, derive
from prep_assets.samples import ASSISTANT, SYSTEM, USER, PlainChat
from prep_assets_tests.masks.bound import SHIPPED, Bound, bind, run
from prep_assets_tests.masks.test_plain_batches import TEXTS

TALKS = [
    PlainChat((USER, ASSISTANT), ("What is it?", "It is é and 中 at 50% %b.")),
    PlainChat((SYSTEM, USER, ASSISTANT, USER, ASSISTANT), ("Be brief.", "Hi", "Hello", "So?", "So it is.")),
    PlainChat((USER, ASSISTANT), (" Hi ", "\tHello\n")),
]


@pytest.fixture(autouse=True)
def no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """No chat is left to the proofs of single rows because its hash says so."""
    monkeypatch.setattr(plain_forms, "ONE_IN", 1 << 40)


def rows_of(bound: Bound, chats: Sequence[PlainChat], options: MaskOptions) -> tuple[list[PlainChat], list[Row], list[Conversation]]:
    """The chats that a build keeps, with what it stores of them and what single rows are proven by."""
    found = run(bound, [chat.sample() for chat in chats], options)
    kept, rows, renders = [], [], []
    for at, number in enumerate(found.kept):
        derived = derive(chats[number].sample(), options, bound.template)
        kept.append(chats[number])
        rows.append(Row(str(at), found.ids(at), found.loss(at), derived.expected, tagged=derived.tagged))
        renders.append(Conversation(str(at), found.ids(at), derived.text, derived.controls, derived.typed))
    return kept, rows, renders


def proven(bound: Bound, options: MaskOptions, chats: Sequence[PlainChat | None], rows: Sequence[Row]) -> tuple[list[bool], MaskProof, int]:
    masks, identities = MaskProof(bound.vocabulary), IdentityProof(bound.vocabulary)
    masks.table._asked = bound.vocabulary.size  # else so few rows are decoded one by one
    derivation = PlainDerivation(options, bound.template, typed_controls=False)
    lengths = np.array([len(row.ids) for row in rows], np.int64)
    ids, mask = (np.concatenate([getattr(row, name) for row in rows]) for name in ("ids", "mask"))
    found = PlainBlocks(derivation, masks, identities, ["</think>"]).prove(Claims(chats, lengths, ids, mask))
    return found.tolist(), masks, identities.tokenized


@pytest.mark.parametrize("name", ["alpaca", "chatml", "llama3", "plain"])
def test_sound_rows_are_proven_and_counted(name: str) -> None:
    bound, options = bind(SHIPPED, name), MaskOptions()
    chats, rows, renders = rows_of(bound, TALKS, options)
    found, masks, tokenized = proven(bound, options, chats, rows)
    assert found == [True] * len(TALKS)
    assert masks.verdict() == prove_masks(rows, bound.vocabulary)
    assert tokenized == prove_identity(renders, bound.vocabulary).numbers["rows_tokenized_again"]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
@pytest.mark.parametrize("name", ["chatml", "plain"])
def test_a_corrupted_row_is_not_proven(name: str, mutation: Mutation) -> None:
    bound, options = bind(SHIPPED, name), MaskOptions()
    chats, rows, _ = rows_of(bound, TALKS, options)
    changed = mutation.change(rows, 1, bound.vocabulary)
    if changed is not None:
        same = [old.ids is new.ids and old.mask is new.mask for old, new in zip(rows, changed, strict=True)]
        assert proven(bound, options, chats, changed)[0] == same
        assert not all(same)


def test_a_weight_and_a_token_that_decodes_alike() -> None:
    bound, options = bind(SHIPPED, "chatml"), MaskOptions()
    chats, rows, _ = rows_of(bound, TALKS, options)
    ids = rows[0].ids.tolist()
    halved = Row("halved", rows[0].ids, rows[0].mask * 0.5, rows[0].expected)
    table = {own: number for number, own in enumerate(bound.vocabulary.token_bytes or ())}
    at = next(i for i, token in enumerate(ids) if len((bound.vocabulary.token_bytes or ())[token]) > 1 and not rows[0].mask[i])
    parts = [table[bytes([byte])] for byte in (bound.vocabulary.token_bytes or ())[ids[at]]]
    longer = np.array([*ids[:at], *parts, *ids[at + 1 :]])
    spelt = Row("spelt", longer, np.concatenate([rows[0].mask[:at], np.zeros(len(parts)), rows[0].mask[at + 1 :]]), rows[0].expected)
    for wrong in (halved, spelt):
        assert proven(bound, options, chats, [wrong, *rows[1:]])[0] == [False, True, True]


def test_other_chats_are_left_alone() -> None:
    bound, options = bind(SHIPPED, "chatml"), MaskOptions()
    chats = [*TALKS, PlainChat((USER, ASSISTANT), ("What?", "Hm.</think> So.")), PlainChat((USER, ASSISTANT), ("<|im_end|>", "A token."))]
    kept, rows, _ = rows_of(bound, chats, options)
    assert len(kept) == len(chats)
    assert proven(bound, options, kept, rows)[0] == [True, True, True, False, False]
    assert proven(bound, options, [None, *kept[1:]], rows)[0] == [False, True, True, False, False]
    assert proven(bound, options, [None], rows[:1])[0] == [False]


@pytest.mark.parametrize("name", ["chatml", "vicuna"])
def test_whatever_is_proven_by_the_block_is_proven_alone(name: str) -> None:
    bound, options = bind(SHIPPED, name), MaskOptions(train_on_eos="last")

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6), st.integers(0, 1 << 20), st.booleans())
    def check(texts: list[tuple[str, str]], where: int, in_mask: bool) -> None:
        chats, rows, renders = rows_of(bound, [PlainChat((USER, ASSISTANT), each) for each in texts], options)
        if not rows:
            return
        number = where % len(rows)
        row = rows[number]
        changed = {"ids": row.ids.copy(), "mask": row.mask.copy()}
        changed["mask" if in_mask else "ids"][where % len(row.ids)] = 1 - row.mask[where % len(row.ids)] if in_mask else 7
        rows[number] = Row(row.id, changed["ids"], changed["mask"], row.expected)
        found = proven(bound, options, chats, rows)[0]
        for is_proven, each, render in zip(found, rows, renders, strict=True):
            alone = Conversation(render.id, each.ids, render.text, render.controls, render.typed)
            assert not is_proven or (prove_masks([each], bound.vocabulary).passed and prove_identity([alone], bound.vocabulary).passed)

    check()
