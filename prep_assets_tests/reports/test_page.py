"""The page as a file: it says what the stores hold, and nothing in a record becomes more than text."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.config.mask import MaskPolicy
from prep_assets.config.models import Sft
from prep_assets.extensions.explain.data import sampled, weight_runs
from prep_assets.extensions.explain.figures import measure
from prep_assets.extensions.explain.made_with import made_with
from prep_assets.extensions.explain.report import render, report
from prep_assets.extensions.explain.rows import line_texts, prove
from prep_assets.graph.graph import tables_of
from prep_assets.graph.sft import SFT_TOKENS
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.derive import Expected
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets.text.visible import one_line, visible
from prep_assets_tests.effort import examples
from prep_assets_tests.graph.workspaces import build, resealed
from prep_assets_tests.proofs.words import record, vocabulary
from prep_assets_tests.reports.hostile import HOSTILE, Read, hostile_workspace, page_of, unseen
from prep_assets_tests.stored import packed_rows


def test_hostile_records_stay_text(hostile: tuple[Workspace, dict[str, Published]]) -> None:
    workspace, stores = hostile
    plain = Read(report(workspace, [stores["sft_template"]]))
    for asset in ("sft_raw", "sft_tokens", "sft_packed"):
        html = report(workspace, [stores[asset]])
        read = Read(html)
        assert read.handlers == []
        assert all(address.startswith("#") for address in read.addresses)
        assert set(read.tags) <= {*plain.tags, "section", "form", "label", "input", "select", "option", "article", "figure", "figcaption", "mark", "svg",
                                  "rect", "text", "line", "title", "noscript", "kbd", "span", "table", "thead", "tbody", "tr", "th", "td"}  # fmt: skip
        assert sum("window.pwned" in text for text in read.texts) == 0
        assert unseen(html) == set()


def test_rows_are_those_of_the_store(hostile: tuple[Workspace, dict[str, Published]]) -> None:
    workspace, stores = hostile
    store, read = open_stream(stores["sft_tokens"].directory, "train"), Read(report(workspace, [stores["sft_tokens"]]))
    rows, vocabulary = read.rows(), read.held("vocabulary")
    assert len(rows) == len(store) == len(HOSTILE)
    for number, row in enumerate(rows):
        assert row["i"] == store.record(number, "tokens").tolist()
        assert [weight for count, weight in row["w"] for _ in range(count)] == store.record(number, "loss_mask").astype(float).tolist()
        assert row["p"][0][1] == f"evil/<b onclick=alert(1)>rows.jsonl:{number + 1}"
    assert unseen("".join(vocabulary.values())) == set()


def test_packed_rows_name_their_records(hostile: tuple[Workspace, dict[str, Published]]) -> None:
    workspace, stores = hostile
    packed, tokens = open_stream(stores["sft_packed"].directory, "sft_packed"), open_stream(stores["sft_tokens"].directory, "train")
    for number, row in enumerate(Read(report(workspace, [stores["sft_packed"]])).rows()):
        pieces = range(*packed.pieces.of(number).indices(len(packed.pieces.fields["row"])))
        assert [piece[0] for piece in row["p"]] == packed.pieces.fields["row_offset"][list(pieces)].tolist()
        for piece, at in zip(row["p"], pieces, strict=True):
            assert piece[1].endswith(f":{tokens.origins.row[packed.pieces.fields['record'][at]] + 1}")


def test_refused_records_have_reason_and_payload(hostile: tuple[Workspace, dict[str, Published]]) -> None:
    workspace, stores = hostile
    refused = Read(report(workspace, [stores["sft_packed"]])).held("refused")
    assert [each[1].rsplit(":", 1)[1] for each in refused] == [str(len(HOSTILE) + number) for number in range(1, 5)]
    assert all("window.pwned" in each[4] for each in refused)


def test_both_derivations_agree_on_every_record(hostile: tuple[Workspace, dict[str, Published]]) -> None:
    workspace, stores = hostile
    for row in Read(report(workspace, [stores["sft_packed"]])).rows():
        for *_, (fault, stretches) in row["p"]:
            assert fault == ""
            assert all(first[0].strip() == second[0].strip() for _, _, first, second in stretches)


def test_a_wrong_mask_is_shown(tmp_path: Path) -> None:
    workspace = hostile_workspace(tmp_path)
    build(workspace, "sft_raw", "evil")
    store = build(workspace, "sft_tokens", "evil")
    mask = next(store.directory.glob("train/*/loss_mask.bin"))
    mask.write_bytes(b"\1" + mask.read_bytes()[1:])
    rows = Read(report(workspace, [resealed(store)])).rows()
    assert "trained stretches" in rows[0]["p"][0][4][0]
    assert [row["p"][0][4][0] for row in rows[1:]] == [""] * (len(rows) - 1)


def test_a_changed_source_is_said(tmp_path: Path) -> None:
    workspace = hostile_workspace(tmp_path)
    build(workspace, "sft_raw", "evil")
    store = build(workspace, "sft_tokens", "evil")
    source = next(tmp_path.glob("*.jsonl"))
    source.write_bytes(source.read_bytes() + b"{}\n")
    html = report(workspace, [store])
    assert "The second derivation is not shown for evil" in html
    assert all(len(row["p"][0]) == 4 for row in Read(html).rows())


def test_every_store_has_a_page(built: tuple[Workspace, dict[tuple[str, str], Published]]) -> None:
    workspace, stores = built
    for asset in {asset for asset, _ in stores}:
        own = [store for (name, _), store in stores.items() if name == asset]
        read = Read(report(workspace, own))
        text = " ".join(read.texts)
        assert all(store.manifest.content_hash in text for store in own)
        total = sum(store.manifest.counts.get("trained_tokens", 0) for store in own)
        assert not total or f"{total:,}" in text
        for row in read.rows():
            assert all(re.fullmatch(r"\w+/[\w.]+:\d+(, answer \d+ of \d+)?|arithmetic:\d+", piece[1]) for piece in row["p"])


def test_accounting_adds_up(built: tuple[Workspace, dict[tuple[str, str], Published]]) -> None:
    workspace, stores = built
    read = Read(report(workspace, [stores["sft_packed", ""]]))
    read_records = sum(store.manifest.counts["read"] for (asset, _), store in stores.items() if asset == "sft_raw")
    assert f"{read_records:,}" in read.texts


def test_pages_do_not_depend_on_the_folder(tmp_path: Path) -> None:
    pages = []
    for name in ("one", "two"):
        workspace = hostile_workspace(tmp_path / name)
        build(workspace, "sft_raw", "evil")
        store = build(workspace, "sft_tokens", "evil")
        os.utime(store.directory / "manifest.json", (10**9, 10**9))
        pages.append(report(workspace, [store]))
    assert pages[0] == pages[1]
    assert str(tmp_path) not in pages[0]
    assert "built 2001-09-09 01:46 UTC" in pages[0]


def test_lines_of_pairs_have_their_texts_and_lengths(built: tuple[Workspace, dict[tuple[str, str], Published]]) -> None:
    workspace, stores = built
    read = Read(report(workspace, [stores["preferences", ""]]))
    lines = [
        json.loads(line)
        for name in ("preferences", "preferences_test")
        for line in (stores["preferences", ""].directory / f"{name}.jsonl").read_text("utf-8").splitlines()
    ]
    assert [{name: texts for name, _, texts in row["f"]} for row in read.rows()] == [
        {name: [["", visible(text)]] for name, text in line.items()} for line in lines
    ]
    assert read.held("index")["pair"] == [[len(line["chosen"]), len(line["rejected"])] for line in lines]
    longer = sum(len(line["chosen"]) > len(line["rejected"]) for line in lines)
    assert f"{longer / len(lines):.0%}" in read.texts[read.texts.index("chosen is longer in") :][:2]


def test_both_sides_of_a_pair_of_tokens_are_one_row(built: tuple[Workspace, dict[tuple[str, str], Published]]) -> None:
    workspace, stores = built
    directory, read = stores["preference_tokens", ""].directory, Read(report(workspace, [stores["preference_tokens", ""]], rows=40))
    index, names = read.held("index"), [stream["name"] for stream in read.held("streams")]
    assert {names[at] for at in index["stream"]} == {"chosen", "test/chosen"}
    for at, row in enumerate(read.rows()):
        number, sides = index["number"][at], [open_stream(directory, names[index[key][at]]) for key in ("stream", "beside")]
        assert [row["i"], row["b"]["i"]] == [side.record(number, "tokens").tolist() for side in sides]
        assert index["pair"][at] == [int(side.record(number, "loss_mask").sum()) for side in sides]
        assert row["p"][0][1] == row["b"]["p"][0][1]


@pytest.mark.parametrize("asset", ["preference_tokens", "preference_tokens_by_domain"])
def test_in_how_many_pairs_the_chosen_answer_has_more_trained_tokens(
    built: tuple[Workspace, dict[tuple[str, str], Published]], asset: str
) -> None:
    workspace, stores = built
    chosen = [store for (name, _), store in stores.items() if name == asset]
    longer = [
        int(more) > int(less)
        for store in chosen
        for part in ("", "test/")
        for streams in [[open_stream(store.directory, f"{part}{side}") for side in ("chosen", "rejected")]]
        for more, less in zip(*([each.record(at, "loss_mask").sum() for at in range(len(each))] for each in streams), strict=True)
    ]
    read = Read(report(workspace, chosen))
    assert f"{sum(longer) / len(longer):.0%}" == read.texts[read.texts.index("chosen is longer in") + 1]


def test_texts_of_a_line_by_speaker() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": 1}]}
    line = {
        "prompt": [{"role": "user", "content": "Hi"}, call],
        "label": True,
        "responses": ["a", "b"],
        "two": [[{"role": "user", "content": "x"}], []],
    }
    assert line_texts(line) == {
        "prompt": [("user", "Hi"), ("assistant", 'tool_calls: [{"id": 1}]')],
        "label": [("", "true")],
        "responses": [("1", "a"), ("2", "b")],
        "two": [("1 user", "x"), ("2", "[]")],
    }


def test_the_head_says_what_it_is_made_with(hostile: tuple[Workspace, dict[str, Published]]) -> None:
    workspace, stores = hostile
    recipe, texts = stores["sft_tokens"].manifest.recipe, Read(report(workspace, [stores["sft_packed"]])).texts
    shown = [texts[texts.index(name) + 1] for name in ("Tokenizer", "Chat template", "Mask policy", "Packing")]
    family = workspace.family(Sft)
    assert shown == [
        f"{Path(family.tokenizer).name} ({recipe['tokenizer']['sha256'][:12]})",
        f"{'the tokenizer' + chr(39) + 's own' if family.template == 'tokenizer' else family.template} ({recipe['template'][:12]})",
        MaskPolicy.of(recipe).in_words(),
        "concat, rows of 512 tokens",
    ]
    older = replace(stores["sft_tokens"], manifest=replace(stores["sft_tokens"].manifest, recipe={**recipe, "template": "0" * 64}))
    made = made_with(workspace, "sft_packed", [(SFT_TOKENS, [older])])
    assert dict(made)["Chat template"] == "000000000000, not the one configured now"


def test_words_of_the_mask_follow_every_option() -> None:
    policy = MaskPolicy(mask={"assistant": "train", "user": "mask"})
    plain = policy.model_dump()
    assert policy.in_words() == "trained: assistant, with the stop token of each of these turns; masked: user, other roles"
    changes = [{"mask": {"assistant": "mask"}}, {"mask_default": "train"}, *({"train_on_eos": stop} for stop in ("last", "all", "none"))]
    changes += [{"train_turns": "last"}, {"train_thinking": False}, {"train_tool_calls": False}, {"train_headers": True}]
    assert {key for change in changes for key in change} == {*MaskPolicy.model_fields}
    assert len({MaskPolicy(**{**plain, **change}).in_words() for change in [{}, *changes]}) == len(changes) + 1


@settings(max_examples=examples(40))
@given(st.text() | st.lists(st.sampled_from(HOSTILE)).map("".join))
def test_any_text_stays_text(text: str) -> None:
    html = render(page_of(text), {"held": text}, [])
    read, empty = Read(html), Read(render(page_of("x"), {"held": ""}, []))
    assert read.tags == empty.tags
    assert read.handlers == []
    assert unseen(html) == set()
    assert one_line(text).strip() in "".join(read.texts) or not one_line(text).strip()
    assert read.held("held") == text.encode("utf-8", "backslashreplace").decode()


@given(st.text())
def test_visible_hides_nothing(text: str) -> None:
    assert unseen(visible(text)) == set()
    assert unseen(one_line(text)) == set()
    assert "\n" not in one_line(text)
    plain = "".join(char for char in text if not unseen(char) and char.isalnum())
    assert all(char in visible(text) for char in plain)


# -- which rows a page holds, and its figures against plain loops ------------------------------------------------------------------------


def test_figures_of_a_packed_table_are_those_of_a_plain_loop(built: tuple[Workspace, dict[tuple[str, str], Published]]) -> None:
    _, stores = built
    published = stores["sft_packed", ""]
    for name, measured in _by_stream(published).items():
        store = open_stream(published.directory, name)
        for each in measured:
            lengths, trained = [], 0
            for at, source in enumerate(store.pieces.fields["source"].tolist()):
                if store.pieces.domains[source] == each.domain:
                    row, start, length = (int(store.pieces.fields[key][at]) for key in ("row", "row_offset", "length"))
                    lengths.append(length)
                    trained += int((np.asarray(packed_rows(store, "loss_mask")[row][start : start + length]) != 0).sum())
            assert (each.documents, each.total, each.trained, each.longest) == (len(lengths), sum(lengths), trained, max(lengths))


def test_figures_of_tokens_are_those_of_the_manifest(built: tuple[Workspace, dict[tuple[str, str], Published]]) -> None:
    _, stores = built
    for (asset, partition), published in stores.items():
        if asset == "sft_tokens":
            found = measure(tables_of(published))
            counts = published.manifest.counts
            assert {each.domain for each in found} == {partition}
            assert (sum(each.total for each in found), sum(each.trained or 0 for each in found)) == (
                counts["tokens"],
                counts["trained_tokens"],
            )


def _by_stream(published: Published) -> dict[str, list]:
    found: dict[str, list] = {}
    for each in measure(tables_of(published)):
        found.setdefault(each.stream, []).append(each)
    return found


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 300), min_size=1), st.integers(1, 200))
def test_sampled_rows(counts: dict[int, int], want: int) -> None:
    chosen = sampled(counts, want)
    assert chosen == sampled(counts, want)
    for stream, count in counts.items():
        rows = chosen[stream]
        assert rows == sorted(set(rows))
        assert all(0 <= row < count for row in rows)
        if sum(counts.values()) <= want:
            assert len(rows) == count
        elif count > 1:
            assert {0, count - 1} <= set(rows)
    assert sum(map(len, chosen.values())) <= want + 2 * len(counts) or sum(counts.values()) <= want


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0])))
def test_runs_of_weights(weights: list[float]) -> None:
    runs = weight_runs(weights)
    assert [weight for start, end, weight in runs for _ in range(start, end)] == weights
    assert all(one[2] != other[2] and one[1] == other[0] for one, other in pairwise(runs))


def test_two_answers_in_one_run_stand_beside_their_texts() -> None:
    """A token that holds what stands between them parts them, as it does for the check."""
    words = vocabulary("Hi", ".", "<e>", "  Lo")
    row = record("a:0", np.arange(4), np.ones(4, np.float32), (Expected("Hi.<e>", 1.0, "<e>"), Expected(" Lo")))
    fault, stretches = prove(row, words)
    assert [each[2:] for each in stretches] == [[["Hi.<e>", 1.0], ["Hi.<e>", 1.0]], [["  Lo", 1.0], [" Lo", 1.0]]]
    assert fault == ""
