"""Identity of conversations on a tokenizer of whole words: each row that is not the reference's, in the words of the verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prep_assets.proofs import mask as identity
from prep_assets.proofs.mask import Conversation, expected_ids, prove_identity
from prep_assets.proofs.reference_ids import ReferenceIds
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.text.ids import Flat
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.tokenization.loaded import CONFIGS, load

TEXT = "<|im_start|>user\nHi there<|im_end|>\n"
CONTROLS = ((0, 12), (25, 35))


@pytest.fixture(scope="module")
def shipped() -> Vocabulary:
    return load(CONFIGS / "tokenizer").vocabulary


def plain(vocabulary: Vocabulary, text: str) -> list[int]:
    return list(vocabulary.backend.encode(text, add_special_tokens=False).ids)


def right(vocabulary: Vocabulary) -> list[int]:
    start, end = (vocabulary.control[token] for token in ("<|im_start|>", "<|im_end|>"))
    return [start, *plain(vocabulary, "user\nHi there"), end, *plain(vocabulary, "\n")]


def row(ids: Any, name: str = "a:0", **more: Any) -> Conversation:
    return Conversation(name, np.array(ids), **({"text": TEXT, "controls": CONTROLS, "typed": 0} | more))


def test_rows_that_are_the_reference_s(shipped: Vocabulary) -> None:
    numbers = {"rows_tokenized_again": 2, "control_tokens_in_content": 3}
    rows = [row(right(shipped)), row(right(shipped), typed=3)]
    assert prove_identity(rows, shipped) == Verdict(True, "2 rows have the reference tokenizer's ids of their render", numbers)
    assert prove_identity(rows * 600, shipped).summary.startswith("1,200 rows have")


@pytest.mark.parametrize("batch", [1, 2 * len(TEXT), 1 << 21])
def test_a_row_that_is_not(shipped: Vocabulary, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    assert identity.BATCH_CHARACTERS == 1 << 21
    monkeypatch.setattr(identity, "BATCH_CHARACTERS", batch)
    ids = right(shipped)
    other = next(number for number in range(shipped.size) if number not in ids and shipped.decode([number]).strip())
    wrong = [*ids[:2], other, *ids[3:]]
    verdict = prove_identity([row(ids), row(wrong, "b:7"), row(ids)], shipped)
    near = [shipped.decode(each[:7]) for each in (wrong, ids)]
    note = f"{len(ids)} ids, the reference tokenizer gives {len(ids)}; from token 2 on they differ: …{near[0]!r}…, the render has …{near[1]!r}…"
    worst = Worst("b:7", note, tuple(wrong), at=2, derivations=((near[0], near[1]),))
    assert (verdict.passed, verdict.summary, verdict.worst) == (False, f"b:7: {note}", worst)
    assert verdict.numbers["rows_tokenized_again"] == 2


def test_a_row_that_is_longer_or_shorter(shipped: Vocabulary) -> None:
    ids = right(shipped)
    for wrong, at in ((ids[:-1], len(ids) - 1), ([*ids, ids[-1]], len(ids))):
        verdict = prove_identity([row(wrong)], shipped)
        assert verdict.worst is not None
        assert verdict.worst.note.startswith(
            f"{len(wrong)} ids, the reference tokenizer gives {len(ids)}; from token {at} on they differ: …"
        )
        near = [shipped.decode(each[max(0, at - 5) : at + 5]) for each in (wrong, ids)]
        assert verdict.worst.note.endswith(f"…{near[0]!r}…, the render has …{near[1]!r}…")


def test_what_truncation_must_have_left(shipped: Vocabulary) -> None:
    ids = right(shipped)
    left = np.array(ids[:3])
    assert prove_identity([row(ids), row(ids[:3], left=left), row(ids)], shipped).passed
    wrong = prove_identity([row(ids, left=left)], shipped).worst
    assert wrong is not None and wrong.note.startswith(f"{len(ids)} ids, the reference tokenizer gives 3; from token 3 on they differ")


@pytest.mark.parametrize(
    ("text", "controls", "parts"),
    [
        (TEXT, CONTROLS, ["<|im_start|>", "user\nHi there", "<|im_end|>", "\n"]),
        ("Hi", (), ["Hi"]),
        ("", (), []),
        ("<|im_end|><|im_end|>", ((0, 10), (10, 20)), ["<|im_end|>", "<|im_end|>"]),
        ("a<|im_end|>", ((1, 11),), ["a", "<|im_end|>"]),
        ("a<|im_end|>", (), ["a<|im_end|>"]),
    ],
)
def test_a_render_is_cut_at_the_templates_control_tokens(shipped: Vocabulary, text: str, controls: Any, parts: list[str]) -> None:
    reference = ReferenceIds(shipped)
    typed = [part == "a<|im_end|>" for part in parts]
    rows = [Conversation("x", np.zeros(0), text, controls, 0)] * 2
    wanted: list[int] = []
    for part, is_typed in zip(parts, typed, strict=True):
        if part in shipped.control:
            wanted.append(shipped.control[part])
        else:
            wanted += reference.encode([part]).ids.tolist() if is_typed else plain(shipped, part)
    found = list(expected_ids(rows, shipped, reference))
    assert [each.tolist() for each in found] == [wanted, wanted] and all(each.dtype == np.uint32 for each in found)


class Noting:
    """A reference that gives each text one id, its number among all texts."""

    def __init__(self) -> None:
        self.texts, self.begins = list[str](), list[bool]()

    def encode_utf8(self, texts: Any, begins: Any) -> Flat:
        first = len(self.texts)
        self.texts += [text.decode() for text in texts]
        assert begins.dtype == bool
        self.begins += begins.tolist()
        return Flat(np.arange(first, first + len(texts), dtype=np.uint32), np.arange(len(texts) + 1))


def test_what_others_have_proven_is_counted(shipped: Vocabulary) -> None:
    proof = identity.IdentityProof(shipped)
    proof.proven(3)
    proof.proven(4, 20, 1000)
    proof.proven(0, 1, 2)
    proof.add([row(right(shipped), taken=5), row(right(shipped), taken=6)])
    proof.add([row(right(shipped), taken=700)])
    says = "10 rows have the reference tokenizer's ids of their render"
    numbers = {"rows_tokenized_again": 10, "control_tokens_in_content": 21, "tokens_cut_away": 1713}
    assert proof.verdict() == Verdict(True, says, numbers)
    proof.add([row([1])])
    proof.proven(7)
    proof.add([row(right(shipped), taken=1, typed=1)])
    failed = proof.verdict()
    assert not failed.passed and failed.numbers == {**numbers, "rows_tokenized_again": 11}


def test_the_token_that_is_shown(shipped: Vocabulary) -> None:
    ids = right(shipped)
    for wrong, at in (([*ids[:-1], 0], len(ids) - 1), ([*ids, 0], len(ids)), (ids[:-2], len(ids) - 3), ([], -1)):
        worst = prove_identity([row(np.array(wrong, np.int64))], shipped).worst
        assert worst is not None and worst.at == at


def test_which_texts_begin_a_conversation(shipped: Vocabulary) -> None:
    """What stands before the first control token begins it; the others follow one. Between two tokens there is no text."""
    reference: Any = Noting()
    start, end = (shipped.control[token] for token in ("<|im_start|>", "<|im_end|>"))
    text = "a<|im_start|>b<|im_end|><|im_start|>"
    rows = [row([], text=text, controls=((1, 13), (14, 24), (24, 36))), row([], text="cd", controls=()), row([], text="", controls=())]
    found = [ids.tolist() for ids in expected_ids(rows, shipped, reference)]
    assert found == [[0, start, 1, end, start], [2], []]
    assert (reference.texts, reference.begins) == (["a", "b", "cd"], [True, False, True])


def test_typed_control_tokens_of_all_batches_are_counted(shipped: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "BATCH_CHARACTERS", 1)
    verdict = prove_identity([row(right(shipped), typed=2), row(right(shipped), typed=3)], shipped)
    assert verdict.numbers == {"rows_tokenized_again": 2, "control_tokens_in_content": 5}
