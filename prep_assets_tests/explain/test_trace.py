"""Every token of every store leads back to the row of its source, and that row alone gives the token again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.config.models import Sft
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.explain.streams import Place
from prep_assets.extensions.explain.trace import Trace, Tracer, field_of, token_of, trace
from prep_assets.extensions.explain.where import where
from prep_assets.graph.graph import EVERY, streams
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.corpus.sentinels import TOKENS, tokenizer_with_sentinels
from prep_assets_tests.explain.conftest import Command
from prep_assets_tests.explain.made import EXPORTS, WITH_TOKENS, _count, every_place
from prep_assets_tests.graph.workspaces import all_unchecked, domain, jsonl, minimal, resealed, workspace_in


def every_trace(workspace: Workspace, asset: str) -> list[Trace]:
    tracer = Tracer(workspace)
    return tracer.trace(every_place(tracer, asset))


Traced = Callable[[str], list[Trace]]


@pytest.fixture(scope="module")
def traced(made: Workspace) -> Traced:
    """The traces of every place of an asset, made once."""
    return cache(lambda asset: every_trace(made, asset))


PROMPTS = ("rl_tokens_by_domain", "arithmetic_tokens", "rl_tokens")


@pytest.mark.parametrize("asset", [*WITH_TOKENS, *EXPORTS])
def test_the_source_alone_gives_every_token(traced: Traced, asset: str) -> None:
    traces = traced(asset)
    assert traces
    for found in traces:
        assert found.differs == ()
        covered = np.zeros(len(found.row.ids), int)
        for each in found.pieces:
            assert each.sequence is not None
            assert (each.source is None) == ("arithmetic_prompts" in {place.asset for place in each.piece.path})
            covered[each.piece.start : each.piece.end] += 1
            for place in range(each.piece.start, each.piece.end):
                why = each.sequence.why(place - each.piece.start + each.piece.first)
                trained = found.row.weights is None or found.row.weights[place] != 0
                # where there is no mask, each token of a document is trained, and none of a prompt
                assert why.trained == (trained if asset not in PROMPTS else False)
                assert why.because
        assert (covered <= 1).all()
        if asset not in ("sft_packed", "sft_export_trl"):  # packed rows may be padded
            assert (covered == 1).all()


@pytest.mark.parametrize("asset", WITH_TOKENS)
def test_spans_say_what_tokens_stand_for(made: Workspace, traced: Traced, asset: str) -> None:
    """Against the tokenizer's own table of bytes: a token's bytes are within its characters, and equal where these are whole."""
    family = made.family(_family(asset))
    table = made.vocabulary(family).token_bytes
    assert table is not None
    seen = 0
    for found in traced(asset):
        for each in found.pieces:
            sequence = each.sequence
            assert sequence is not None
            for token, start, end in zip(sequence.ids.tolist(), sequence.starts.tolist(), sequence.ends.tolist(), strict=True):
                if start == end:  # written around documents
                    continue
                text = sequence.text[start:end].encode()
                assert table[token] in text
                seen += 1
                if len(table[token]) == len(text):
                    assert table[token] == text
    assert seen


def _family(asset: str) -> Any:
    from prep_assets.config.models import FAMILIES

    return FAMILIES["rl" if asset == "arithmetic_tokens" else asset.partition("_")[0]]


@pytest.mark.parametrize(
    "asset",
    [
        "preferences_by_domain",
        "preferences",
        "rl_prompts_by_domain",
        "rl_prompts",
        "arithmetic_prompts",
        "preference_export_dpo",
        "rl_export_verl",
    ],
)
def test_lines_come_from_their_rows(made: Workspace, traced: Traced, asset: str) -> None:
    traces = traced(asset)
    assert traces
    for found in traces:
        [each] = found.pieces
        last = each.piece.path[-1]
        stored = (
            (made.place(last.asset, last.partition).current().directory / f"{last.stream}.jsonl").read_text("utf-8").splitlines()[last.row]
        )  # type: ignore[union-attr]
        said = json.loads(stored)
        assert each.line is not None
        assert {key: said[key] for key in each.line} == dict(each.line)
        assert (each.source is None) == (asset == "arithmetic_prompts")


def test_rows_of_raw_assets_are_the_lines_of_the_file(made: Workspace) -> None:
    lines = (made.configs.parent / "data" / "own.jsonl").read_text("utf-8").splitlines()
    found = [trace(made, "sft_raw", row, partition="own").pieces[0].source for row in range(len(lines))]
    assert [each.payload for each in found if each] == [json.loads(line) for line in lines]
    assert [(each.row, each.id.rpartition(":")[2]) for each in found if each] == [
        (number, str(number)) for number in range(1, len(lines) + 1)
    ]


def test_labels_are_shifted_as_trainers_shift_them(traced: Traced) -> None:
    """Logits at place k are compared with label k + 1, which is the token there or -100 (Hugging Face's causal loss)."""
    for found in traced("sft_packed")[:3]:
        assert found.row.weights is not None
        labels = np.where(found.row.weights != 0, found.row.ids, -100)
        for place in range(len(labels)):
            token, _ = token_of(found, place)
            target = labels[place + 1] if place + 1 < len(labels) else -100
            assert (-100 if token.predicts is None else token.predicts.id) == target
            assert (token.predicted_at == place - 1) == (place > 0 and labels[place] != -100)


@pytest.mark.parametrize(("asset", "trained"), [("rl_tokens", False), ("arithmetic_tokens", False), ("pretrain_tokens", True)])
def test_a_stream_without_a_mask_is_trained_whole_or_not_at_all(traced: Traced, asset: str, trained: bool) -> None:
    """A token of a prompt was said to be trained, because a mask does not name its role."""
    for found in traced(asset)[:3]:
        assert found.row.weights is None
        for place in range(len(found.row.ids)):
            token, _ = token_of(found, place)
            assert (token.weight != 0) == trained == token.why.trained
            assert (token.predicts is not None) == (trained and place + 1 < len(found.row.ids))
            assert "mask" not in token.why.because or trained


def test_a_token_is_found_in_the_raw_row(traced: Traced) -> None:
    [found] = [each for each in traced("sft_tokens") if each.pieces[0].source and each.pieces[0].source.id == "own.jsonl:1"]
    emoji = found.pieces[0].sequence.text.index("🎉")  # type: ignore[union-attr]
    tokens = [token_of(found, place)[0] for place in range(len(found.row.ids))]
    inside = [token for token in tokens if token.span[0] <= emoji < token.span[1]]
    assert len(inside) > 1  # one character of several tokens
    assert {token.field for token in inside} == {"messages[1].content"}
    assert {token.why.option for token in inside} == {"mask.assistant"}
    answer = "Hallo, schön 🎉."
    assert {answer[slice(*token.within)].strip() for token in inside if token.within} == {"🎉"}  # the first may begin with the space


def test_a_text_that_stands_in_two_fields_is_not_placed() -> None:
    assert field_of({"a": "same", "b": ["same"]}, "same") is None
    assert field_of({"a": "same", "b": ["not the same"]}, "same") == "a"
    assert field_of({"a": "x", "b": [{"c": "holds the text"}]}, "the text") == "b[0].c"


# -- why ----------------------------------------------------------------------------------------------------------------------------------

CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "Three?"},
        {"role": "assistant", "content": "Four."},
    ]
}


def why_of(folder: Path, text: str, **options: Any) -> Any:
    """Why the token in which `text` begins is trained or not."""
    folder.mkdir()
    configured = minimal("sft", {"chats": domain(jsonl(folder / "chats.jsonl", [CHAT]), "messages")}, packing={"row_len": 128}, **options)
    [found] = every_trace(all_unchecked(workspace_in(folder, configured)), "sft_tokens")
    sequence = found.pieces[0].sequence
    assert sequence is not None
    at = sequence.text.index(text)
    place = next(i for i in range(len(sequence)) if sequence.starts[i] <= at < sequence.ends[i])
    assert found.differs == ()
    return sequence.why(place)


@pytest.mark.parametrize(
    ("text", "options", "trained", "part", "option"),
    [
        ("Two.", {}, True, "content", "mask.assistant"),
        ("One?", {}, False, "content", "mask_default"),
        ("One?", {"mask": {"user": "train", "assistant": "train"}}, True, "content", "mask.user"),
        ("Two.", {"train_turns": "last"}, False, "content", "train_turns"),
        ("One?", {"train_turns": "last"}, False, "content", "mask_default"),
        ("Four.", {"train_turns": "last"}, True, "content", "mask.assistant"),
        ("<|im_start|>assistant", {}, False, "template", "train_headers"),
        ("<|im_start|>assistant", {"train_headers": True}, True, "template", "train_headers"),
        ("<|im_start|>user", {}, False, "template", ""),
        ("<|im_end|>\n<|im_start|>user\nThree", {}, True, "stop", "train_on_eos"),
        ("<|im_end|>\n<|im_start|>user\nThree", {"train_on_eos": "last"}, False, "stop", "train_on_eos"),
        ("<|im_end|>\n<|im_start|>user\nThree", {"train_on_eos": "none"}, False, "stop", "train_on_eos"),
        ("<|im_end|>\n<|im_start|>assistant", {}, False, "stop", "train_on_eos"),
        ("<|im_end|>\n<|im_start|>assistant", {"train_on_eos": "all"}, True, "stop", "train_on_eos"),
    ],
)
def test_the_option_that_decided_is_named(
    tmp_path: Path, text: str, options: dict[str, Any], trained: bool, part: str, option: str
) -> None:
    why = why_of(tmp_path / "w", text, **options)
    assert (why.trained, why.part, why.option) == (trained, part, option)
    assert option in why.because


@pytest.mark.parametrize(
    "options",
    [
        {"truncation": "end", "truncation_keeps_stop": True},
        {"truncation": "start"},
        {"truncation": "turns"},
        {"truncation": "prompt"},
        {"truncation": "prompt", "truncation_keeps": {"user": {"part": "end"}}},
        {"train_on_eos": "all", "train_headers": True},
    ],
)
def test_cut_records_are_traced_too(tmp_path: Path, options: dict[str, Any]) -> None:
    limit = {"preprocessing": {"max_seq_len": 64}} if "truncation" in options else {}
    configured = minimal("sft", {"chats": domain("chats.jsonl", "messages", max_items=12)}, packing={"row_len": 128}, **limit, **options)
    traces = every_trace(all_unchecked(workspace_in(tmp_path, configured)), "sft_tokens")
    assert traces
    for found in traces:
        [each] = found.pieces
        assert found.differs == ()
        assert each.sequence is not None
        assert found.row.weights is not None
        assert [each.sequence.why(i).trained for i in range(len(found.row.ids))] == (found.row.weights != 0).tolist()


# -- refusals -----------------------------------------------------------------------------------------------------------------------------


def test_padding_is_traced_too(tmp_path: Path) -> None:
    configured = minimal("sft", {"chats": domain("chats.jsonl", "messages", max_items=12)}, packing={"strategy": "ffd", "row_len": 512})
    [*traces] = every_trace(all_unchecked(workspace_in(tmp_path, configured)), "sft_packed")
    assert {len(found.row.ids) for found in traces} == {512}
    emptiest = min(traces, key=lambda found: found.row.pieces[-1].end)
    assert emptiest.row.pieces[-1].end < 512 and token_of(emptiest, 511)[0].why.part == "padding"


def test_what_is_not_there_is_said_with_numbers(made: Workspace) -> None:
    count = trace(made, "sft_packed", 0).row.count
    with pytest.raises(ConfigError, match=f"row {count} of sft_packed: there are {count}, numbered from 0"):
        trace(made, "sft_packed", count)
    with pytest.raises(ConfigError, match="row -1 of"):
        trace(made, "sft_tokens", -1, partition="own")
    with pytest.raises(ConfigError, match=r"one store for each domain\. Say which with --partition: gsm8k, own"):
        trace(made, "sft_tokens", 0)
    with pytest.raises(ConfigError, match="sft_template has no rows"):
        trace(made, "sft_template", 0)
    with pytest.raises(ConfigError, match="did you mean 'rejected'"):
        trace(made, "preference_tokens", 0, stream="rejectd")
    with pytest.raises(ConfigError, match=r"token 128 of row 0: there are 128"):
        token_of(trace(made, "sft_packed", 0), 128)
    with pytest.raises(ConfigError, match=r"holds lines and no tokens.*preference_tokens"):
        token_of(trace(made, "preferences", 0), 0)


def test_a_source_that_changed_is_told(mine: Workspace) -> None:
    source = mine.configs.parent / "data" / "own.jsonl"
    source.write_text(source.read_text("utf-8") + json.dumps(CHAT) + "\n", "utf-8")
    with pytest.raises(
        StoreError,
        match=r"sft_packed is out of date, because .*sft_raw\[own\] is stale .*a source file is not what it was\)",
    ):
        trace(Workspace(mine.configs, mine.stores), "sft_packed", 0)
    assert trace(Workspace(mine.configs, mine.stores), "sft_tokens", 0, partition="gsm8k").differs == ()


def test_a_store_that_is_out_of_date_is_told(mine: Workspace) -> None:
    config = mine.configs / "sft.yaml"
    config.write_text(config.read_text("utf-8").replace("row_len: 128", "row_len: 64"), "utf-8")
    with pytest.raises(StoreError, match=r"sft_packed is stale \(changed: packing.row_len\)"):
        trace(Workspace(mine.configs, mine.stores), "sft_packed", 0)


def test_a_wrong_token_is_named(mine: Workspace, run: Command) -> None:
    import h5py

    published = mine.place("sft_packed").current()
    assert published is not None
    with h5py.File(published.directory / "sft_packed.h5", "r+") as file:
        was = int(file["tokens"][1, 7])
        file["tokens"][1, 7] = was + 1
        file["loss_mask"][1, 9] = 1 - file["loss_mask"][1, 9]
    resealed(published)  # else the store would not open
    found = trace(mine, "sft_packed", 1)
    assert found.differs == (7, 9)
    token, _ = token_of(found, 7)
    assert token.expected is not None
    assert (token.token.id, token.expected.id) == (was + 1, was)
    result = run(mine, "trace", "sft_packed", "--row", 1)
    assert result.exit_code == 1
    assert "not what its sources give, at token 7, 9" in result.output


# -- the command --------------------------------------------------------------------------------------------------------------------------


def test_the_command_shows_the_way(made: Workspace, run: Command) -> None:
    result = run(made, "trace", "sft_export_trl", "--row", 0, "--token", 20)
    assert result.exit_code == 0, result.output
    for word in ("token 20 of sft_export_trl", "loss weight", "because", "sft_tokens[", "build_key", "sha256"):
        assert word in result.output
    said = json.loads(run(made, "trace", "sft_export_trl", "--row", 0, "--token", 20, "--json").stdout)
    assert said["token"]["place"] == 20
    assert [step["asset"] for step in said["token"]["piece"]["path"]] == ["sft_export_trl", "sft_packed", "sft_tokens"]
    assert set(said["stores"]["sft_packed"]) == {"build_key", "content"}


def test_a_family_of_documents_cut_for_filling_in(tmp_path: Path) -> None:
    folder = tokenizer_with_sentinels(tmp_path)
    docs = {"docs": domain("docs.jsonl.zst", "text", max_items=20)}
    configured = {"pretrain": {"tokenizer": folder, "domains": docs, "preprocessing": {"fim": {"rate": 0.8, "spm_rate": 0.5, **TOKENS}}}}
    traces = every_trace(all_unchecked(workspace_in(tmp_path / "w", configured)), "pretrain_tokens")
    parts = {each.pieces[0].sequence.why(number).part for each in traces for number in range(len(each.row.ids))}  # type: ignore[union-attr]
    assert [found.differs for found in traces] == [()] * 20
    assert parts == {"sentinel", "content", "end"}


# -- a draft, which options of one run made, is traced with these options, and what it was made from with those of the file --------------


DRAFTS: list[tuple[str, str, dict[str, Any]]] = [
    ("sft_tokens", "own", {"template": "chatml", "train_on_eos": "none"}),
    ("sft_packed", "", {"packing": {"row_len": 64}}),
    ("pretrain_tokens", "notes", {"append_eod": False}),
    ("preferences_by_domain", "hh", {"form": "messages"}),
    ("preference_tokens_by_domain", "hh", {"preprocessing": {"max_seq_len": 70}, "truncation": "end"}),
    ("rl_prompts_by_domain", "gsm8k", {"form": "messages"}),
    ("arithmetic_prompts", "", {"arithmetic": {"seed": 7}}),
]


def drafted(workspace: Workspace, asset: str, partition: str, options: dict[str, Any]) -> None:
    """Make a draft, without its checks."""
    found = EVERY[asset]
    made = found.build(workspace.overriding(found.family, options), partition).propose(draft=True)
    assert not made.reused and made.manifest.options == options


@pytest.mark.parametrize(("asset", "partition", "options"), DRAFTS, ids=[each[0] for each in DRAFTS])
def test_the_source_alone_gives_every_token_of_a_draft(mine: Workspace, asset: str, partition: str, options: dict[str, Any]) -> None:
    current = trace(mine, asset, 0, partition=partition or None)
    drafted(mine, asset, partition, options)
    tracer = Tracer(mine, (asset, partition))
    published = tracer.opened.published(asset, partition)
    assert published.manifest.content_hash != mine.content(asset, partition)
    seen = 0
    for stream in streams(published):
        first = Place(asset, partition, stream, 0)
        for found in tracer.trace([Place(asset, partition, stream, row) for row in range(_count(tracer, first))]):
            assert found.differs == ()
            for each in found.pieces:
                if each.line is not None and len(each.piece.path) == 1:
                    lines = (published.directory / f"{stream}.jsonl").read_text("utf-8").splitlines()
                    stored = json.loads(lines[found.row.place.row])
                    assert {key: stored[key] for key in each.line} == each.line
            seen += 1
    assert seen
    assert f"{mine.place(asset, partition).label} (draft)" in tracer.trace([Place(asset, partition, streams(published)[0], 0)])[0].hashes
    again = trace(mine, asset, 0, partition=partition or None)
    assert again.hashes == current.hashes and (again.row.ids == current.row.ids).all()


def test_where_looks_into_drafts_where_that_is_asked_for(mine: Workspace, run: Command) -> None:
    before = where(mine, "gsm8k#3")
    drafted(mine, "sft_packed", "", {"packing": {"row_len": 64}})
    assert where(mine, "gsm8k#3") == before
    [found] = [each for each in where(mine, "gsm8k#3", drafts=True) if each.family == "sft"]
    packed = [each for each in found.found if each.draft]
    [tokens] = [each for each in found.found if each.asset == "sft_tokens"]
    assert {each.asset for each in packed} == {"sft_packed"} and found.not_here == ()
    assert sorted(at for each in packed for at in range(each.first, each.first + each.end - each.start)) == list(range(tokens.end))
    assert "sft_packed (draft)" in run(mine, "where", "gsm8k#3", "--draft").output
    for each in packed:
        row = trace(mine, "sft_packed", each.row, draft=True)
        assert "gsm8k.jsonl:4" in {piece.source.id for piece in row.pieces if piece.source}


def test_a_draft_that_says_nothing_of_its_options_or_is_not_there_is_told(mine: Workspace, run: Command) -> None:
    with pytest.raises(StoreError, match=r"sft_packed has no draft.*\n.*prep-assets build sft_packed --set KEY=VALUE"):
        trace(mine, "sft_packed", 0, draft=True)
    with pytest.raises(StoreError, match=r"a draft of sft_raw\[own\] has no rows: trace"):
        trace(mine, "sft_raw", 0, partition="own", draft=True)
    drafted(mine, "sft_packed", "", {"packing": {"row_len": 64}})
    shown = run(mine, "trace", "sft_packed", "--row", 1, "--token", 0, "--draft")
    assert shown.exit_code == 0 and "sft_packed (draft) row 1 of" in shown.output
    file = mine.configs / "sft.yaml"
    file.write_text(file.read_text("utf-8").replace("strategy: concat", "strategy: bfd_split"), "utf-8")
    said = r'the draft of sft_packed is not what its options \({"packing": {"row_len": 64}}\) would give now \(changed: .*strategy'
    with pytest.raises(StoreError, match=said):
        trace(Workspace(mine.configs, mine.stores), "sft_packed", 0, draft=True)


def test_tokens_of_a_draft_are_named_by_its_own_tokenizer(mine: Workspace, tmp_path: Path) -> None:
    other = tmp_path / "tokenizer"
    shutil.copytree(mine.configs / mine.family(Sft).tokenizer, other)
    file = other / "tokenizer.json"
    said = json.loads(file.read_text("utf-8"))
    vocabulary = said["model"]["vocab"]
    one, two = (vocabulary[letter] for letter in "HG")  # two letters that no merge begins with change places
    vocabulary["H"], vocabulary["G"] = two, one
    file.write_text(json.dumps(said), "utf-8")
    drafted(mine, "sft_tokens", "own", {"tokenizer": str(other)})
    found = trace(mine, "sft_tokens", 0, partition="own", draft=True)
    texts = [token_of(found, place)[0].token.text for place in range(len(found.row.ids))]
    assert "".join(texts).startswith(trace(mine, "sft_tokens", 0, partition="own").pieces[0].sequence.text[:20])  # type: ignore[union-attr]
