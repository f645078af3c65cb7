"""Regions that are not attended to: `semantic_attention_mask` from the source to the stores, the exports and the batches of a trainer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tokenizers import Tokenizer

from prep_assets import export
from prep_assets.config.models import Sft
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.explain.previews import preview
from prep_assets.extensions.explain.rows import read
from prep_assets.extensions.explain.trace import Tracer, token_of
from prep_assets.extensions.exports.compared import compare
from prep_assets.extensions.exports.registry import exports
from prep_assets.extensions.selftest.mutations import ATTENTION_MASK_MUTATIONS, ATTENTION_MUTATIONS
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.pipeline.media import record_files
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import PACKED, TOKENS, Table, open_stream
from prep_assets.stores.version_folders import Published
from prep_assets.text.visible import Preview
from prep_assets.training import DatasetFactory, PackedDataset, Pad, PaddingFree
from prep_assets_tests.effort import SOAK
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.pictures import TOKEN as PICTURE_TOKEN
from prep_assets_tests.graph.pictures import pictures_in, tokenizer_in
from prep_assets_tests.graph.workspaces import TOKENIZER, build, build_all, domain, jsonl, minimal, refusals, verdicts, workspace_in
from prep_assets_tests.stored import packed_rows

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
    turn("user", ("q", "Why?", None, True)), turn("assistant", ("draft", "Perhaps this.", 0, False), ("a", " Because of that.", 1, True))
)
PLAIN = row(
    turn("prompt", ("hint", "Über:", None, False), ("q", " one two three", None, True), ("tail", " (hidden)", None, False)),
    turn("completion", ("a", " four", 0.5, True), ("aside", " five six", 0, False), ("b", " seven", 1, True)),
)


def many(count: int) -> list[dict[str, Any]]:
    """Chats that differ, of which two in three hide something."""
    tells = [
        turn("assistant", ("draft", f"Not {number}.", 0, bool(number % 3)), ("a", f" It is {number}.", 1, True)) for number in range(count)
    ]
    asks = [turn("user", ("p", f"Of {number * number}:", None, number % 3 == 1), ("q", " which?", None, True)) for number in range(count)]
    return [row(ask, tell) for ask, tell in zip(asks, tells, strict=True)]


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
    own = domain(jsonl(tmp_path / "rows.jsonl", rows), "semantic", options={"separator": "", **(options or {})})
    workspace = make(minimal("sft", {"d": own}, **more))
    return workspace, build(workspace, "sft_tokens", "d")


def attention(store: Table, number: int) -> list[int]:
    return store.record(number, "attention_mask").tolist()


def test_tokens_of_regions_without_attention_are_not_attended(make: Make, tmp_path: Path) -> None:
    rows = [CHAT, ALL_SEEN, THOUGHT, PLAIN]
    workspace, published = made(make, tmp_path, rows)
    store = open_stream(published.directory, "train")
    for number, each in enumerate(rows):
        ids, mask = expected(parts(each))
        assert store.record(number, "tokens").tolist() == ids
        assert attention(store, number) == mask
        assert not (store.record(number, "loss_mask")[np.array(mask) == 0] != 0).any()
    assert store.columns["attention_mask"].values.dtype == np.uint8
    found = verdicts(workspace, published)
    unattended = sum(expected(parts(each))[1].count(0) for each in rows)
    assert f"{unattended} tokens without attention decode to exactly the texts without it" in found["mask_alignment"].summary
    assert published.manifest.counts["trained_tokens"] == int(np.count_nonzero(store.columns["loss_mask"].values[:]))


def test_the_configuration_says_it_by_name_and_the_row_first(make: Make, tmp_path: Path) -> None:
    """As weights and dropped regions are read: the turn's own list, else the options, else attended."""
    options = {"semantic_attention_mask": {"passage": 0, "question": 0}}
    bare = {
        "semantic_data_array": [
            {key: value for key, value in each.items() if key != "semantic_attention_mask"} for each in CHAT["semantic_data_array"]
        ]
    }
    _, published = made(make, tmp_path, [bare, CHAT], options)
    store = open_stream(published.directory, "train")
    by_name = row(turn("user", ("passage", PASSAGE, None, False), ("question", QUESTION, None, False)), CHAT["semantic_data_array"][1])
    assert attention(store, 0) == expected(parts(by_name))[1]
    assert attention(store, 1) == expected(parts(CHAT))[1]


def test_a_store_in_which_all_is_attended_has_no_such_column(make: Make, tmp_path: Path) -> None:
    _, published = made(make, tmp_path, [ALL_SEEN], packing={"row_len": 64})
    assert set(open_stream(published.directory, "train").columns) == {"tokens", "loss_mask"}


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


LONG = row(
    turn(
        "user", ("q", "one two three four", None, True), ("p", " Passage — é 東京", None, False), ("r", " and more words here", None, True)
    ),
    turn("assistant", ("draft", "Perhaps 東京 this.", 0, False), ("a", " Because of that.", 1, True)),
)


@pytest.mark.parametrize("mode", ["end", "start", "prompt", "turns"])
def test_truncation_cuts_both_masks_alike(make: Make, tmp_path: Path, mode: str) -> None:
    """Proven by the checks whatever is cut; and of `start` and `end` it is plain what must be left. `prompt` shortens no hidden text."""
    rows = [LONG, CHAT, THOUGHT, PLAIN, row(turn("prompt", ("q", "Hi", None, False)), turn("completion", ("a", " you", None, True)))]
    more = {"truncation_keeps_stop": True} if mode == "end" else {}
    whole, _ = made(make, tmp_path, rows, truncation=mode, preprocessing={"max_seq_len": 48}, **more)
    for limit in range(17, 48, 1 if SOAK else 5):
        workspace = whole.overriding("sft", {"preprocessing": {"max_seq_len": limit}})
        published = build(workspace, "sft_tokens", "d")
        store = open_stream(published.directory, "train")
        for number, at in enumerate(np.asarray(store.origins.row).tolist()):
            ids, mask = expected(parts(rows[at]))
            left = {"end": mask[:limit], "start": mask[-limit:]}.get(mode, mask)
            found = attention(store, number)
            assert len(found) == min(limit, len(ids)) or mode == "turns", limit
            assert (found.count(0) == mask.count(0)) if mode == "prompt" else (found == left), limit


@pytest.mark.parametrize("train_on_eos", ["turn", "last", "all", "none"])
@pytest.mark.parametrize("headers", [False, True])
def test_stop_tokens_and_headers_beside_a_hidden_region_are_attended(make: Make, tmp_path: Path, train_on_eos: str, headers: bool) -> None:
    hidden = row(turn("user", ("q", "Who?", None, False)), turn("assistant", ("d", "Draft.", 0, False)), *THOUGHT["semantic_data_array"])
    _, published = made(make, tmp_path, [hidden, THOUGHT, CHAT], train_on_eos=train_on_eos, train_headers=headers)
    store = open_stream(published.directory, "train")
    assert [attention(store, number) for number in range(3)] == [expected(parts(each))[1] for each in (hidden, THOUGHT, CHAT)]


@pytest.mark.parametrize("template", ["chatml", "alpaca", "llama2", "mistral", "vicuna"])
@pytest.mark.parametrize("train_on_eos", ["turn", "all"])
def test_whatever_the_template_writes_the_texts_are_hidden_and_nothing_else(
    make: Make, tmp_path: Path, template: str, train_on_eos: str
) -> None:
    ends = row(turn("user", ("q", "Who?", None, True), ("tail", " Hidden", None, False)), *ALL_SEEN["semantic_data_array"][1:])
    last = row(*ALL_SEEN["semantic_data_array"], ALL_SEEN["semantic_data_array"][0], turn("assistant", ("a", "Hidden", 0, False)))
    rows = [CHAT, THOUGHT, LONG, ends, last, *many(8)]
    _, published = made(make, tmp_path, rows, template=template, train_on_eos=train_on_eos)
    store = open_stream(published.directory, "train")
    assert len(store) == len(rows)
    for number, each in enumerate(rows):
        hidden = store.record(number, "tokens")[store.record(number, "attention_mask") == 0]
        texts = "".join(text for text, attend in parts(each) if not attend)
        assert "".join(REFERENCE.decode(hidden.tolist(), skip_special_tokens=False).split()) == "".join(texts.split())


def test_selftest_spoils_attention(make: Make, tmp_path: Path) -> None:
    workspace, published = made(make, tmp_path, [CHAT, ALL_SEEN, THOUGHT])
    trials = {trial.mutation: trial for trial in selftest(workspace, published)}
    assert [trial for trial in trials.values() if not trial.passed] == []
    assert all(trials[mutation.name].tried for mutation in ATTENTION_MUTATIONS)


# -- packed -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("storage", "strategy"), [("h5", "bfd"), ("bin", "concat")])
def test_packed_rows_keep_the_attention_of_their_records_and_have_none_in_the_padding(
    make: Make, tmp_path: Path, storage: str, strategy: str
) -> None:
    """A domain whose tokens are all attended is packed beside one with regions that are not."""
    own = domain(jsonl(tmp_path / "rows.jsonl", [CHAT, ALL_SEEN, THOUGHT, *many(12)]), "semantic", options={"separator": ""})
    seen = domain(jsonl(tmp_path / "seen.jsonl", [ALL_SEEN, *many(2)[1:]]), "semantic", options={"separator": ""})
    workspace = make(
        minimal("sft", {"d": own, "seen": seen}, output={"storage_format": storage}, packing={"row_len": 64, "strategy": strategy})
    )
    published = build_all(workspace, ["sft"])
    tokens = {name: open_stream(published["sft_tokens", name].directory, "train") for name in ("d", "seen")}
    assert "attention_mask" not in tokens["seen"].columns
    table = open_stream(published["sft_packed", ""].directory, "sft_packed")
    found = np.asarray(packed_rows(table, "attention_mask")[:])
    wanted = np.zeros_like(found)
    fields = ("row", "row_offset", "length", "source", "record", "start")
    for line, at, length, source, record, start in zip(*(np.asarray(table.pieces.fields[key]).tolist() for key in fields), strict=True):
        store = tokens[table.pieces.domains[source]]
        own_mask = (
            store.record(record, "attention_mask") if "attention_mask" in store.columns else np.ones(len(store.record(record, "tokens")))
        )
        wanted[line, at : at + length] = own_mask[start : start + length]
    assert found.tolist() == wanted.tolist()
    assert (found == 0).any() and (wanted.sum(axis=1) < table.width).any()
    trials = {trial.mutation: trial for trial in selftest(workspace, published["sft_packed", ""])}
    assert [trial for trial in trials.values() if not trial.passed] == []
    assert {"attention lost", "attention inverted", "padding attended", "trained tokens not attended"} <= trials.keys()


# -- documents --------------------------------------------------------------------------------------------------------------------------


DOCUMENTS = [
    row(turn(None, ("a", "Seen.", 1, True), ("b", " Hidden words.", 0, False), ("c", " Seen too.", 1, True))),
    row(turn(None, ("a", "All of it.", None, True))),
    row(turn(None, ("a", "Half.", 0.5, True), ("b", " Hidden at the end.", 0, False))),
    row(turn(None, ("a", "Asks for both.", None, False), ("b", " Seen.", None, True))),
]


def test_documents_of_pretraining(make: Make, tmp_path: Path) -> None:
    own = domain(jsonl(tmp_path / "rows.jsonl", DOCUMENTS), "semantic")
    workspace = make(minimal("pretrain", {"d": own}))
    published = build(workspace, "pretrain_tokens", "d")
    assert [f"{each.stage}/{each.reason}" for each in refusals(published)] == ["render/trained_unattended"]
    store = open_stream(published.directory, "d_train")
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
    trials = {trial.mutation: trial for trial in selftest(workspace, published)}
    assert [trial for trial in trials.values() if not trial.passed] == []
    assert all(trials[mutation.name].tried for mutation in ATTENTION_MASK_MUTATIONS)


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
    [refusal] = refusals(build(workspace, "preferences_by_domain", "d"))
    assert (refusal.reason, refusal.stage) == ("not_attended", "schema")
    assert "only tokens of documents and chats have an attention mask" in refusal.detail


# -- exports and trainers ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sft(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Chats of which some regions are not attended, packed. Tests only read them."""
    folder = tmp_path_factory.mktemp("hidden")
    file = jsonl(folder / "rows.jsonl", [CHAT, ALL_SEEN, THOUGHT, *many(15)])
    workspace = workspace_in(
        folder / "here",
        minimal("sft", {"d": domain(file, "semantic", options={"separator": ""})}, packing={"row_len": 96, "strategy": "bfd"}),
    )
    build_all(workspace, ["sft"])
    return workspace


def store_of(workspace: Workspace, asset: str, partition: str = "") -> Path:
    found = workspace.built(asset, partition)
    return found.directory


def rows_of(workspace: Workspace) -> list[tuple[list[int], list[int], list[int]]]:
    """Tokens, attention and document lengths of each packed row, without padding: from the table's own files."""
    table = open_stream(store_of(workspace, "sft_packed"), "sft_packed")
    found = []
    for number in range(len(table)):
        lengths = np.asarray(table.pieces.fields["length"])[table.pieces.of(number)].tolist()
        used = slice(0, sum(lengths))
        found.append(
            (
                np.asarray(packed_rows(table)[number])[used].tolist(),
                np.asarray(packed_rows(table, "attention_mask")[number])[used].tolist(),
                lengths,
            )
        )
    return found


@pytest.mark.parametrize("format", ["packed_parquet", "hf_parquet"])
@pytest.mark.parametrize("asset", ["sft_packed", "sft_tokens"])
def test_parquet_has_a_column(sft: Workspace, tmp_path: Path, format: str, asset: str) -> None:
    out = export(store_of(sft, asset, "d" if asset == "sft_tokens" else ""), format, tmp_path / "out")
    found = [row for path in sorted(out.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    if asset == "sft_packed":
        wanted = [(tokens, mask) for tokens, mask, _ in rows_of(sft)]
    else:
        store = open_stream(store_of(sft, asset, "d"), "train")
        wanted = [(store.record(number, "tokens").tolist(), attention(store, number)) for number in range(len(store))]
    assert [(each["input_ids"], each["attention_mask"]) for each in found] == wanted
    assert any(0 in mask for _, mask in wanted)


def test_cerebras_spans_end_where_a_token_is_not_attended(sft: Workspace, tmp_path: Path) -> None:
    """`attention_span` of the Model Zoo: query q sees key k where 0 <= q - k <= attention_span[k], and nothing else."""
    out = export(store_of(sft, "sft_packed"), "cerebras", tmp_path / "out", pad_id=sft.vocabulary(sft.family(Sft)).pad_id)
    with h5py.File(out / "output_chunk_0_0.h5") as file:
        data = file["data"][:]
    for sample, (tokens, mask, lengths) in zip(data, rows_of(sft), strict=True):
        inputs = len(tokens) - 1
        assert sample[0, :inputs].tolist() == tokens[:-1]
        query, key = np.mgrid[:inputs, :inputs]
        seen = (query >= key) & (query - key <= sample[3, :inputs])
        document = np.repeat(np.arange(len(lengths)), lengths)[:inputs]
        wanted = (query == key) | ((query > key) & (document[:, None] == document) & (np.array(mask[:inputs]) != 0))
        assert np.array_equal(seen, wanted)


@pytest.mark.parametrize("format", ["cerebras", "packed_parquet", "hf_parquet", "aligned_parquet"])
def test_exports_are_read_back_and_spoiled_ones_are_not(sft: Workspace, tmp_path: Path, format: str) -> None:
    options: dict[str, Any] = {"pad_id": sft.vocabulary(sft.family(Sft)).pad_id} if format == "cerebras" else {"split": "train"}
    options |= {"eos_id": sft.vocabulary(sft.family(Sft)).eos_id} if format == "aligned_parquet" else {}
    source = open_stream(store_of(sft, "sft_packed"), "sft_packed")
    assert compare(export(source, format, tmp_path / "right", **options), source, format, options).passed
    mask = np.asarray(packed_rows(source, "attention_mask"))
    for name, other in {"lost": None, "shifted": np.roll(mask, 1, axis=1), "inverted": (1 - mask).astype(np.uint8)}.items():
        columns = {key: column for key, column in source.columns.items() if key != "attention_mask"}
        if other is not None:
            columns["attention_mask"] = replace(source.columns["attention_mask"], values=other.reshape(-1))
        out = export(replace(source, columns=columns), format, tmp_path / name, **options)
        if other is None and format == "hf_parquet":  # its columns are compared before its rows
            with pytest.raises(
                StoreError, match=r"the columns are \['input_ids', 'labels', 'seq_lengths'\], TRL reads \['attention_mask', "
            ):
                compare(out, source, format, options)
            continue
        verdict = compare(out, source, format, options)
        assert not verdict.passed and "attended" in verdict.summary


REFUSING = sorted(
    name
    for name, each in exports().items()
    if any(schema.fits(taken) for schema in (TOKENS, PACKED) for taken in each.takes)
    and name not in ("cerebras", "packed_parquet", "hf_parquet", "aligned_parquet")
)


@pytest.mark.parametrize("format", REFUSING)
def test_every_other_export_refuses_in_words(sft: Workspace, tmp_path: Path, format: str) -> None:
    required = {"litdata": {"block_size": 4}}.get(format, {})
    for asset, partition in (("sft_tokens", "d"), ("sft_packed", "")):
        if any({"sft_tokens": TOKENS, "sft_packed": PACKED}[asset].fits(taken) for taken in exports()[format].takes):
            with pytest.raises(ConfigError, match=r"cannot say which tokens are not attended.*cerebras, hf_parquet, packed_parquet"):
                export(store_of(sft, asset, partition), format, tmp_path / asset, **required)


def test_single_documents_without_images_have_no_place_for_it_at_cerebras(sft: Workspace, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot say which tokens are not attended\. Export sft_packed"):
        export(store_of(sft, "sft_tokens", "d"), "cerebras", tmp_path / "out", max_seq_length=96)


def model() -> Any:
    """A model of two layers with drawn weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "vocab_size": REFERENCE.get_vocab_size(),
    }
    return LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation="sdpa")).eval()


def logits(batch: dict[str, Any]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model()(**{key: batch[key] for key in ("input_ids", "attention_mask", "position_ids") if key in batch}).logits
    return found


def test_packed_rows_reach_a_model_that_does_not_attend_to_them(sft: Workspace) -> None:
    """What stands where a token is not attended changes nothing but what is predicted there; nor does another document."""
    dataset = PackedDataset(store_of(sft, "sft_packed"))
    items = [dataset[number] for number in range(2)]
    assert [item["attention_mask"].tolist()[: len(mask)] for item, (_, mask, _) in zip(items, rows_of(sft), strict=False)] == [
        mask for _, mask, _ in rows_of(sft)[:2]
    ]
    assert all(int(item["attention_mask"][int(item["seq_lengths"].sum()) :].sum()) == 0 for item in items)
    batch = PaddingFree()(items)
    hidden = torch.cat([item["attention_mask"][: int(item["seq_lengths"].sum())] for item in items]) == 0
    assert batch["attention_mask"].shape == (1, 1, len(hidden), len(hidden)) and hidden.any()
    changed = {**batch, "input_ids": torch.where(hidden, (batch["input_ids"] + 7) % 100, batch["input_ids"])}
    before, after = logits(batch)[0], logits(changed)[0]
    assert torch.equal(before[~hidden], after[~hidden])
    assert not torch.allclose(before[hidden], after[hidden])
    first = int(batch["cu_seqlens"][1])
    alone = {"input_ids": batch["input_ids"][:, :first], "attention_mask": batch["attention_mask"][:, :, :first, :first]}
    assert torch.allclose(logits(alone)[0], before[:first], atol=1e-5)
    all_seen = [{**item, "attention_mask": torch.ones_like(item["attention_mask"])} for item in items]
    assert "attention_mask" not in PaddingFree()(all_seen)
    open_one = {**batch, "attention_mask": batch["attention_mask"] | torch.ones_like(batch["attention_mask"]).tril()}
    assert not torch.allclose(logits(open_one)[0][~hidden], before[~hidden])


def test_documents_are_padded_with_their_own_attention(sft: Workspace) -> None:
    store = open_stream(store_of(sft, "sft_tokens", "d"), "train")
    items = [
        {
            "input_ids": torch.tensor(store.record(number, "tokens").astype(np.int64)),
            "attention_mask": torch.tensor(attention(store, number)),
        }
        for number in (0, 1)
    ]
    batch = Pad(pad_id=3)([items[0], {"input_ids": items[1]["input_ids"]}])
    width = batch["input_ids"].shape[1]
    ones = [1] * len(items[1]["input_ids"])
    assert batch["attention_mask"].tolist() == [mask + [0] * (width - len(mask)) for mask in (attention(store, 0), ones)]
    assert batch["attention_mask"].dtype == torch.int64


def test_windows_give_the_attention_of_their_inputs(sft: Workspace) -> None:
    directory = store_of(sft, "sft_tokens", "d")
    dataset, mask = (
        DatasetFactory.load("sft", directory, 16),
        np.asarray(open_stream(directory, "train").columns["attention_mask"].values[:]),
    )
    found = torch.cat([dataset[number]["attention_mask"] for number in range(len(dataset))])
    assert found.dtype == torch.bool and found.tolist() == (mask[: len(found)] != 0).tolist()


# -- images -----------------------------------------------------------------------------------------------------------------------------


PICTURED = [
    row(turn("user", ("image", "1.png", None, False), ("q", "What is it?", None, True)), turn("assistant", ("a", "A cat.", 1, True))),
    row(turn("user", ("image", "1.png", None, True), ("q", "Hidden words.", None, False)), turn("assistant", ("a", "A dog.", 1, True))),
    row(turn("user", ("q", "Two:", None, True), ("image", "1.png", None, False)), turn("assistant", ("a", "One more.", 1, True))),
]


def with_pictures(folder: Path, family: str, rows: list[dict[str, Any]], **options: Any) -> Workspace:
    own = domain(jsonl(folder / "rows.jsonl", rows), "semantic", image_dir=str(pictures_in(folder, "1.png")))
    more = {"image_token": PICTURE_TOKEN, "image_patches": 3, **options}
    return workspace_in(folder, {family: {"tokenizer": tokenizer_in(folder), "domains": {"d": own}, **more}})


def test_images_are_hidden_whole(tmp_path: Path) -> None:
    """The Model Zoo's multimodal samples say it as `key_padding_mask`."""
    workspace = with_pictures(tmp_path, "sft", PICTURED, packing={"row_len": 64, "strategy": "bfd"})
    built = build_all(workspace, ["sft"])
    store = open_stream(built["sft_tokens", "d"].directory, "train")
    token = record_files()(workspace, workspace.family(Sft)).ids().get("image")
    for number in range(3):
        pictured = store.record(number, "tokens") == token
        assert pictured.sum() == 3
        assert [bool(value) for value in np.unique(store.record(number, "attention_mask")[pictured])] == [number == 1]
    assert (store.record(1, "attention_mask") == 0).any()
    pad = workspace.vocabulary(workspace.family(Sft)).pad_id
    for asset, partition, options in (("sft_tokens", "d", {"max_seq_length": 64}), ("sft_packed", "", {})):
        directory = store_of(workspace, asset, partition)
        source = store if asset == "sft_tokens" else open_stream(directory, "sft_packed")
        out = export(directory, "cerebras", tmp_path / f"out_{asset}", pad_id=pad, **options)
        assert compare(out, source, "cerebras", {"pad_id": pad, **options}).passed
        with h5py.File(out / "output_chunk_0_0.h5") as file:
            data = file["data"][:]
        for number, sample in enumerate(data):
            mask = (
                store.record(number, "attention_mask")
                if asset == "sft_tokens"
                else np.asarray(packed_rows(source, "attention_mask")[number])
            )
            used = len(mask) if asset == "sft_tokens" else int(np.asarray(source.pieces.fields["length"])[source.pieces.of(number)].sum())
            assert sample[3].tolist() == [*(1 - mask[: used - 1]), *[1] * (sample.shape[1] - used + 1)]


def test_documents_with_hidden_images(tmp_path: Path) -> None:
    rows = [
        row(turn(None, ("a", "Before", None, True), ("image", "1.png", None, False), ("b", " after.", None, True))),
        row(turn(None, ("image", "1.png", None, True), ("image", "1.png", None, False), ("b", "Both.", None, True))),
    ]
    workspace = with_pictures(tmp_path, "pretrain", rows)
    published = build(workspace, "pretrain_tokens", "d")
    store = open_stream(published.directory, "d_train")
    assert [attention(store, number).count(0) for number in range(2)] == [3, 3]
    assert attention(store, 1)[:6] == [1, 1, 1, 0, 0, 0]


# -- to look at -------------------------------------------------------------------------------------------------------------------------


def test_a_hidden_token_leads_back_to_its_region(sft: Workspace) -> None:
    """Every token of the packed table is what its source gives, attention and all, and a hidden one says why."""
    tracer = Tracer(sft)
    found = tracer.trace([tracer.place("sft_packed", row, "", "sft_packed") for row in range(len(rows_of(sft)))])
    assert [each.differs for trace in found for each in trace.pieces] == [()] * sum(len(lengths) for *_, lengths in rows_of(sft))
    row, place = next((row, mask.index(0)) for row, (_, mask, _) in enumerate(rows_of(sft)) if 0 in mask)
    token, _ = token_of(found[row], place)
    assert (token.weight, token.why.trained, token.predicts) == (-1, False, None)
    assert "is not attended to, and what is not is never trained" in token.why.because


def test_previews_and_the_report_tell_hidden_tokens_from_masked_ones(sft: Workspace) -> None:
    published = sft.built("sft_tokens", "d")
    shown = preview(sft, published, 0, stream="train")
    assert isinstance(shown, Preview)
    store = open_stream(published.directory, "train")
    assert [weight < 0 for weight in shown.weights] == [mask == 0 for mask in attention(store, 0)]
    assert [weight > 0 for weight in shown.weights] == [bool(weight) for weight in store.record(0, "loss_mask")]
    [first] = read(store, [0])
    assert first.weights == list(shown.weights)
