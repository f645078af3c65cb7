"""Regions that are not attended to: `semantic_attention_mask` from the source to the stores, the exports and the batches of a trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from prep_assets.assets.selftest.run import selftest
from prep_assets.assets.workspace import Workspace
from prep_assets.proofs.document_mutations import ATTENTION_MASK_MUTATIONS
from prep_assets.proofs.mutations import ATTENTION_MUTATIONS
from prep_assets.stores.packed import open_packed
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import TokenStore, open_tokens
from prep_assets_tests.assets.conftest import Make
from prep_assets_tests.assets.workspaces import TOKENIZER, build, build_all, domain, failing, jsonl, minimal, refusals, resealed, verdicts

Region = tuple[str, str, float | None, bool]
"""Name, text, loss weight, whether it is attended."""
REFERENCE = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")


def turn(kind: str | None, *regions: Region) -> dict[str, Any]:
    """A turn of a semantic data array, with lists of its own."""
    made = {"content": [{name: text} for name, text, *_ in regions], "semantic_attention_mask": [int(attend) for *_, attend in regions]}
    if any(weight is not None for _, _, weight, _ in regions):
        made["semantic_loss_weight"] = [0 if weight is None else weight for _, _, weight, _ in regions]
    return made if kind is None else {"type": kind, **made}


def row(*turns: dict[str, Any]) -> dict[str, Any]:
    return {"semantic_data_array": list(turns)}


PASSAGE, QUESTION, ANSWER = "Aspirin thins the blood — it is very old.", " What does aspirin do?", "It thins the blood."
CHAT = row(
    turn("user", ("passage", PASSAGE, None, False), ("question", QUESTION, None, True)), turn("assistant", ("a", ANSWER, None, True))
)
ALL_SEEN = row(turn("user", ("q", "Who?", None, True)), turn("assistant", ("a", "I.", None, True)))
THOUGHT = row(
    turn("user", ("q", "Why?", None, True)),
    turn("assistant", ("draft", "Perhaps this.", 0, False), ("a", " Because of that.", 1, True)),
)
PLAIN = row(
    turn("prompt", ("hint", "Über:", None, False), ("q", " one two three", None, True), ("tail", " (hidden)", None, False)),
    turn("completion", ("a", " four", 0.5, True), ("aside", " five six", 0, False), ("b", " seven", 1, True)),
)


def parts(array: dict[str, Any]) -> list[tuple[str, bool]]:
    """The text of a row as the shipped template writes it, in pieces, and whether each is attended: what a template writes always is."""
    found: list[tuple[str, bool]] = []
    for each in array["semantic_data_array"]:
        is_chat = each["type"] in ("user", "assistant")
        found += [(f"<|im_start|>{each['type']}\n", True)] if is_chat else []
        found += [
            (text, bool(attend))
            for part, attend in zip(each["content"], each["semantic_attention_mask"], strict=True)
            for text in part.values()
        ]
        found += [("<|im_end|>\n", True)] if is_chat else [("<|endoftext|>", True)] if each["type"] == "completion" else []
    return found


def expected(pieces: list[tuple[str, bool]]) -> tuple[list[int], list[int]]:
    """Ids and attention by the tokenizer's offsets: a token is of the piece in which its first character that is no space stands."""
    text = "".join(piece for piece, _ in pieces)
    seen = [attended for piece, attended in pieces for _ in piece]
    encoded = REFERENCE.encode(text, add_special_tokens=False)
    places = [next((at for at in range(low, high) if not text[at].isspace()), low) for low, high in encoded.offsets]
    return encoded.ids, [int(seen[place]) for place in places]


def made(
    make: Make, tmp_path: Path, rows: list[dict[str, Any]], options: dict[str, Any] | None = None, **more: Any
) -> tuple[Workspace, Published]:
    own = domain(jsonl(tmp_path / "rows.jsonl", rows), "semantic", options=options or {})
    workspace = make(minimal("sft", {"d": own}, **more))
    build(workspace, "sft_raw", "d")
    return workspace, build(workspace, "sft_tokens", "d")


def attention(store: TokenStore, number: int) -> list[int]:
    return store.record(number, "attention_mask").tolist()


def test_the_reference_hides_the_passage() -> None:
    ids, mask = expected(parts(CHAT))
    hidden = REFERENCE.decode([token for token, attend in zip(ids, mask, strict=True) if not attend], skip_special_tokens=False)
    assert hidden == PASSAGE


def test_tokens_of_regions_without_attention_are_not_attended(make: Make, tmp_path: Path) -> None:
    rows = [CHAT, ALL_SEEN, THOUGHT, PLAIN]
    workspace, published = made(make, tmp_path, rows)
    store = open_tokens(published.directory, "train")
    for number, each in enumerate(rows):
        ids, mask = expected(parts(each))
        assert store.record(number, "tokens").tolist() == ids
        assert attention(store, number) == mask
        assert not (store.record(number, "loss_mask")[np.array(mask) == 0] != 0).any()
    assert store.arrays["attention_mask"].dtype == np.uint8
    found = verdicts(workspace, published)
    assert [name for name, verdict in found.items() if not verdict.passed] == []
    unattended = sum(expected(parts(each))[1].count(0) for each in rows)
    assert f"{unattended} tokens without attention decode to exactly the texts without it" in found["mask_alignment"].summary
    assert published.manifest.counts["trained_tokens"] == int(np.count_nonzero(store.arrays["loss_mask"][:]))


def test_the_configuration_says_it_by_name_and_the_row_first(make: Make, tmp_path: Path) -> None:
    """As weights and dropped regions are read: the turn's own list, else the options, else attended."""
    options = {"semantic_attention_mask": {"passage": 0, "question": 0}}
    bare = {
        "semantic_data_array": [
            {key: value for key, value in each.items() if key != "semantic_attention_mask"} for each in CHAT["semantic_data_array"]
        ]
    }
    _, published = made(make, tmp_path, [bare, CHAT], options)
    store = open_tokens(published.directory, "train")
    by_name = row(turn("user", ("passage", PASSAGE, None, False), ("question", QUESTION, None, False)), CHAT["semantic_data_array"][1])
    assert attention(store, 0) == expected(parts(by_name))[1]
    assert attention(store, 1) == expected(parts(CHAT))[1]


def test_a_store_in_which_all_is_attended_has_no_such_column(make: Make, tmp_path: Path) -> None:
    _, published = made(make, tmp_path, [ALL_SEEN], packing={"row_len": 64})
    assert set(open_tokens(published.directory, "train").arrays) == {"tokens", "loss_mask"}


@pytest.mark.parametrize(
    ("answer", "more"),
    [
        (turn("assistant", ("a", ANSWER, None, False)), {}),  # the policy trains answers
        (turn("assistant", ("a", ANSWER, 0.5, False)), {}),
        (turn("assistant", ("a", ANSWER, 0, False)), None),
    ],
)
def test_what_is_not_attended_is_never_trained(make: Make, tmp_path: Path, answer: dict[str, Any], more: dict[str, Any] | None) -> None:
    """A row that asks for both is refused with the reason."""
    asked = turn("user", ("q", "Who?", 1, True))
    _, published = made(make, tmp_path, [row(asked, answer), ALL_SEEN])
    found = [f"{each.stage}/{each.reason}" for each in refusals(published)]
    assert found == ([] if more is None else ["render/trained_unattended"])
    if found:
        [refusal] = refusals(published)
        assert "region 'a' in turn 1 of role assistant is not attended, and its loss weight is" in refusal.detail


def test_only_the_last_turn_is_trained_and_an_earlier_answer_hidden(make: Make, tmp_path: Path) -> None:
    rows = [row(*ALL_SEEN["semantic_data_array"][:1], turn("assistant", ("a", "Hidden.", None, False)), *ALL_SEEN["semantic_data_array"])]
    workspace, published = made(make, tmp_path, rows, train_turns="last")
    assert attention(open_tokens(published.directory, "train"), 0) == expected(parts(rows[0]))[1]
    assert failing(workspace, published) == []


LONG = row(
    turn(
        "user", ("q", "one two three four", None, True), ("p", " Passage — é 東京.", None, False), ("r", " and more words here", None, True)
    ),
    turn("assistant", ("draft", "Perhaps 東京 this.", 0, False), ("a", " Because of that.", 1, True)),
)


@pytest.mark.parametrize("limit", range(17, 48, 3))
@pytest.mark.parametrize("mode", ["end", "start", "prompt", "turns"])
def test_truncation_cuts_both_masks_alike(make: Make, tmp_path: Path, mode: str, limit: int) -> None:
    """Proven by the checks whatever is cut; and of `start` and `end` it is plain what must be left. `prompt` shortens no hidden text."""
    rows = [LONG, CHAT, THOUGHT, PLAIN, row(turn("prompt", ("q", "Hi", None, False)), turn("completion", ("a", " you", None, True)))]
    more = {"truncation_keeps_stop": True} if mode == "end" else {}
    workspace, published = made(make, tmp_path, rows, truncation=mode, preprocessing={"max_seq_len": limit}, **more)
    assert failing(workspace, published) == []
    store = open_tokens(published.directory, "train")
    for number, at in enumerate(np.asarray(store.row).tolist()):
        ids, mask = expected(parts(rows[at]))
        left = {"end": mask[:limit], "start": mask[-limit:]}.get(mode, mask)
        found = attention(store, number)
        assert len(found) == min(limit, len(ids)) or mode == "turns"
        assert (found.count(0) == mask.count(0)) if mode == "prompt" else (found == left)


@pytest.mark.parametrize("train_on_eos", ["turn", "last", "all", "none"])
@pytest.mark.parametrize("headers", [False, True])
def test_stop_tokens_and_headers_beside_a_hidden_region_are_attended(make: Make, tmp_path: Path, train_on_eos: str, headers: bool) -> None:
    hidden = row(turn("user", ("q", "Who?", None, False)), turn("assistant", ("d", "Draft.", 0, False)), *THOUGHT["semantic_data_array"])
    workspace, published = made(make, tmp_path, [hidden, THOUGHT, CHAT], train_on_eos=train_on_eos, train_headers=headers)
    store = open_tokens(published.directory, "train")
    assert [attention(store, number) for number in range(3)] == [expected(parts(each))[1] for each in (hidden, THOUGHT, CHAT)]
    assert failing(workspace, published) == []


def spoiled(published: Published, change: str) -> Published:
    path = published.directory / "train" / "shard_0000" / "attention_mask.bin"
    mask = np.fromfile(path, np.uint8)
    loss = np.fromfile(path.with_name("loss_mask.bin"), np.uint8)
    {
        "shifted": lambda: np.roll(mask, 1),
        "turned round": lambda: 1 - mask,
        "lost": lambda: np.ones_like(mask),
        "trained hidden": lambda: mask * (loss == 0),
        "of another value": lambda: mask * 2,
        "untrained hidden": lambda: mask * (loss != 0),
    }[change]().astype(np.uint8).tofile(path)
    return resealed(published)


@pytest.mark.parametrize(
    ("change", "checks"),
    [
        ("shifted", {"mask_alignment", "row_integrity"}),
        ("turned round", {"mask_alignment", "row_integrity"}),
        ("lost", {"mask_alignment"}),
        ("trained hidden", {"mask_alignment", "row_integrity"}),
        ("of another value", {"row_integrity"}),
        ("untrained hidden", {"mask_alignment"}),
    ],
)
def test_checks_see_every_corruption(make: Make, tmp_path: Path, change: str, checks: set[str]) -> None:
    workspace, published = made(make, tmp_path, [CHAT, ALL_SEEN, THOUGHT])
    assert set(failing(workspace, spoiled(published, change))) >= checks


def test_selftest_spoils_attention(make: Make, tmp_path: Path) -> None:
    workspace, published = made(make, tmp_path, [CHAT, ALL_SEEN, THOUGHT])
    trials = {trial.mutation: trial for trial in selftest(workspace, published)}
    assert [trial for trial in trials.values() if not trial.passed] == []
    assert all(trials[mutation.name].tried for mutation in ATTENTION_MUTATIONS)


# -- packed -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["h5", "bin"])
def test_packed_rows_keep_the_attention_of_their_records_and_have_none_in_the_padding(make: Make, tmp_path: Path, storage: str) -> None:
    """A domain whose tokens are all attended is packed beside one with regions that are not."""
    own = domain(jsonl(tmp_path / "rows.jsonl", [CHAT, ALL_SEEN, THOUGHT] * 4), "semantic")
    seen = domain(jsonl(tmp_path / "seen.jsonl", [ALL_SEEN] * 3), "semantic")
    workspace = make(
        minimal("sft", {"d": own, "seen": seen}, output={"storage_format": storage}, packing={"row_len": 64, "strategy": "bfd"})
    )
    published = build_all(workspace, ["sft"])
    tokens = {name: open_tokens(published["sft_tokens", name].directory, "train") for name in ("d", "seen")}
    assert "attention_mask" not in tokens["seen"].arrays
    table = open_packed(published["sft_packed", ""].directory, "sft_packed")
    found = np.asarray(table.attention_mask[:])
    wanted = np.zeros_like(found)
    fields = ("row", "row_offset", "length", "source", "record", "start")
    for line, at, length, source, record, start in zip(*(np.asarray(table.documents[key]).tolist() for key in fields), strict=True):
        store = tokens[table.sources[source]]
        own_mask = (
            store.record(record, "attention_mask") if "attention_mask" in store.arrays else np.ones(len(store.record(record, "tokens")))
        )
        wanted[line, at : at + length] = own_mask[start : start + length]
    assert found.tolist() == wanted.tolist()
    assert (found == 0).any() and (wanted.sum(axis=1) < table.row_len).any()
    assert failing(workspace, published["sft_packed", ""]) == []
    trials = {trial.mutation: trial for trial in selftest(workspace, published["sft_packed", ""])}
    assert [trial for trial in trials.values() if not trial.passed] == []
    assert {"attention lost", "attention turned round", "padding attended", "trained tokens not attended"} <= trials.keys()


# -- documents --------------------------------------------------------------------------------------------------------------------------


DOCUMENTS = [
    row(turn(None, ("a", "Seen.", 1, True), ("b", " Hidden words.", 0, False), ("c", " Seen too.", 1, True))),
    row(turn(None, ("a", "All of it.", None, True))),
    row(turn(None, ("a", "Half.", 0.5, True), ("b", " Hidden at the end.", 0, False))),
    row(turn(None, ("a", "Asks for both.", None, False), ("b", " Seen.", None, True))),
]


@pytest.mark.parametrize("storage", ["h5", "bin"])
def test_documents_of_pretraining(make: Make, tmp_path: Path, storage: str) -> None:
    own = domain(jsonl(tmp_path / "rows.jsonl", DOCUMENTS), "semantic")
    workspace = make(minimal("pretrain", {"d": own}, output={"storage_format": storage}))
    build(workspace, "pretrain_raw", "d")
    published = build(workspace, "pretrain_tokens", "d")
    assert [f"{each.stage}/{each.reason}" for each in refusals(published)] == ["render/trained_unattended"]
    store = open_tokens(published.directory, "d_train")
    for number, each in enumerate(DOCUMENTS[:3]):
        [one] = each["semantic_data_array"]
        pieces = [
            (text, bool(attend))
            for part, attend in zip(one["content"], one["semantic_attention_mask"], strict=True)
            for text in part.values()
        ]
        ids, mask = expected([*pieces, ("<|endoftext|>", True)])
        assert (store.record(number, "tokens").tolist(), attention(store, number)) == (ids, mask)
    assert store.record(2, "loss_mask")[-1] == 0
    assert failing(workspace, published) == []
    trials = {trial.mutation: trial for trial in selftest(workspace, published)}
    assert [trial for trial in trials.values() if not trial.passed] == []
    assert all(trials[mutation.name].tried for mutation in ATTENTION_MASK_MUTATIONS)


def test_a_document_whose_only_hidden_region_has_no_weight_is_not_trained_by_the_fast_way(make: Make, tmp_path: Path) -> None:
    workspace = make(minimal("pretrain", {"d": domain(jsonl(tmp_path / "rows.jsonl", DOCUMENTS[3:] + DOCUMENTS[1:2]), "semantic")}))
    build(workspace, "pretrain_raw", "d")
    assert [each.reason for each in refusals(build(workspace, "pretrain_tokens", "d"))] == ["trained_unattended"]


def test_pairs_have_no_attention_mask_and_say_so(make: Make, tmp_path: Path) -> None:
    rows = [
        row(
            turn("prompt", ("q", "Why?", None, False)), turn("chosen", ("a", "So.", None, True)), turn("rejected", ("a", "No.", None, True))
        ),
        row(
            turn("prompt", ("q", "Why?", None, True)), turn("chosen", ("a", "So.", None, True)), turn("rejected", ("a", "No.", None, True))
        ),
    ]
    workspace = make(minimal("preference", {"d": domain(jsonl(tmp_path / "rows.jsonl", rows), "semantic")}, test_fraction=0.0))
    build(workspace, "preference_raw", "d")
    [refusal] = refusals(build(workspace, "preferences_by_domain", "d"))
    assert (refusal.reason, refusal.stage) == ("not_attended", "schema")
    assert "only tokens of documents and chats have an attention mask" in refusal.detail
