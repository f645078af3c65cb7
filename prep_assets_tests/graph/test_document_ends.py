"""What stands around pretraining documents and sentences: begin-of-text and end-of-text tokens."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from prep_assets import export, load
from prep_assets.engine import build as build_stores
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.extensions.explain.trace import trace
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.documents import documents_begin_with
from prep_assets.stores.shards import STARTS
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets.text.documents import sentences_of
from prep_assets.text.vocabulary import Ends, ends_of, load_vocabulary
from prep_assets_tests.graph.workspaces import CONFIGS, TOKENIZER, build, domain, failing, jsonl, minimal, resealed, workspace_in

# The begin-of-text token of pretraining documents, as the base model had it.


TEXTS = ["One.", "Two <|im_start|> typed.", "Three, and some words more."]


def tokenizer(at: Path, *front: str) -> Path:
    """The shipped tokenizer, which writes some tokens in front of every text; `<|im_start|>` is its begin-of-text token."""
    made = Path(shutil.copytree(CONFIGS / "tokenizer", at))
    spec, config = (json.loads((made / name).read_text("utf-8")) for name in ("tokenizer.json", "tokenizer_config.json"))
    ids = {token["content"]: token["id"] for token in spec["added_tokens"]}
    pieces = [*({"SpecialToken": {"id": text, "type_id": 0}} for text in front), {"Sequence": {"id": "A", "type_id": 0}}]
    used = {text: {"id": text, "ids": [ids[text]], "tokens": [text]} for text in front}
    if front:
        spec["post_processor"] = {"type": "TemplateProcessing", "single": pieces, "pair": pieces, "special_tokens": used}
    (made / "tokenizer.json").write_text(json.dumps(spec))
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_start|>"}
    (made / "tokenizer_config.json").write_text(json.dumps(config))
    return made


def built(at: Path, tokenizer: Path, **options: Any) -> tuple[Workspace, Published]:
    source = jsonl(at / "rows.jsonl", [{"text": text} for text in TEXTS])
    workspace = workspace_in(at / "ws", minimal("pretrain", {"docs": domain(source, "text")}, tokenizer=str(tokenizer), **options))
    return workspace, build(workspace, "pretrain_tokens", "docs")


@pytest.mark.parametrize(
    ("front", "option", "expected"),
    [(("<|im_start|>",), "auto", True), ((), "auto", False), ((), True, True), (("<|im_start|>",), False, False)],
)
@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_each_document_begins_as_the_reference_has_it(
    tmp_path: Path, front: tuple[str, ...], option: Any, expected: bool, engine: str
) -> None:
    """marin issue 5034: a faster engine lost the token. Without the option, no store of this package had it."""
    made = tokenizer(tmp_path / "tokenizer", *front)
    _, published = built(tmp_path, made, bos=option, engine=engine)
    vocabulary = load_vocabulary(str(made))
    store = open_stream(published.directory, "docs_train")
    assert published.manifest.recipe["bos"] is expected
    assert documents_begin_with(vocabulary, str(option).lower()) == (vocabulary.bos_id if expected else None)
    vocabulary.backend.encode_special_tokens = True
    for number, text in enumerate(TEXTS):
        plain = vocabulary.backend.encode(text, add_special_tokens=False).ids
        assert store.record(number, "tokens").tolist() == [*[vocabulary.bos_id] * expected, *plain, vocabulary.eos_id]


def test_what_is_not_the_begin_of_text_token_alone_needs_a_decision(tmp_path: Path) -> None:
    made = tokenizer(tmp_path / "tokenizer", "<|pad|>", "<|im_start|>")
    with pytest.raises(ConfigError, match=r"writes \['<\|pad\|>', '<\|im_start\|>'\] in front of a text"):
        ends_of(load_vocabulary(str(made)), "auto")


def test_one_token_for_both_ends() -> None:
    ids, lengths = Ends(9, 9).around(np.array([1, 2, 3], np.uint32), np.array([2, 0, 1]))
    assert ids.tolist() == [9, 1, 2, 9, 9, 9, 9, 3, 9]
    assert lengths.tolist() == [4, 2, 3]


def test_real_tokenizers(real_data: Path) -> None:
    found = {name: ends_of(load_vocabulary(str(real_data / "tokenizers" / name)), "auto").bos for name in ("gpt2", "smollm", "mistral_v3")}
    assert found == {"gpt2": None, "smollm": None, "mistral_v3": 1}


# `append_eod: false`: documents without an end-of-text token, as ModelLink writes them where --append-eod is not given.


@pytest.fixture(scope="module")
def unended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Published]:
    return built(tmp_path_factory.mktemp("unended"), Path(TOKENIZER), append_eod=False, output={"storage_format": "bin"})


def reference() -> list[list[int]]:
    opened = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    opened.encode_special_tokens = True
    return [opened.encode(text, add_special_tokens=False).ids for text in TEXTS]


def test_documents_are_their_tokens_alone(unended: tuple[Workspace, Published]) -> None:
    workspace, published = unended
    store = open_stream(published.directory, "docs_train")
    assert [store.record(n, "tokens").tolist() for n in range(len(store))] == reference()
    assert published.manifest.recipe["append_eod"] is False
    trials = selftest(workspace, published)
    assert all(each.passed for each in trials) and "an end-of-text token in the middle" in {each.mutation for each in trials if each.tried}
    assert trace(workspace, "pretrain_tokens", 2).differs == ()


def test_weighted_documents_too(tmp_path: Path) -> None:
    rows = [{"semantic_data_array": [{"content": [{"a": "Not this."}, {"b": " But this."}], "semantic_loss_weight": [0, 1]}]}]
    workspace = workspace_in(
        tmp_path, minimal("pretrain", {"docs": domain(jsonl(tmp_path / "rows.jsonl", rows), "semantic")}, append_eod=False)
    )
    build_stores(workspace, "pretrain_tokens")
    published = workspace.built("pretrain_tokens", "docs")
    store = open_stream(published.directory, "docs_train")
    assert len(store.record(0, "tokens")) == len(store.record(0, "loss_mask")) and store.record(0, "loss_mask")[-1] == 1


def test_megatron_keeps_the_borders(unended: tuple[Workspace, Published], tmp_path: Path) -> None:
    store = load(export(unended[1], "megatron", tmp_path / "out"))
    assert [store.fetch_record(n, "sequence").tolist() for n in range(store.num_records)] == reference()


@pytest.mark.parametrize(("format", "options"), [("tlfs", {}), ("litdata", {"block_size": 4}), ("olmo", {}), ("astrai", {})])
def test_formats_that_would_make_one_text_of_all_are_refused(
    unended: tuple[Workspace, Published], tmp_path: Path, format: str, options: dict[str, Any]
) -> None:
    for source in (unended[1], unended[1].directory):
        with pytest.raises(
            ConfigError, match=r"append_eod: false.*one text\. Set append_eod: true, or use a format that keeps borders:.*megatron"
        ):
            export(source, format, tmp_path / "out", **options)


def test_a_configured_export_is_refused_as_well(tmp_path: Path) -> None:
    rows = domain(jsonl(tmp_path / "rows.jsonl", [{"text": text} for text in TEXTS]), "text")
    exports = {"flat": {"from": "pretrain_tokens", "to": "tlfs"}}
    workspace = workspace_in(tmp_path, minimal("pretrain", {"docs": rows}, append_eod=False, exports=exports))
    with pytest.raises(PrepAssetsError, match="would be one text"):
        build_stores(workspace, "pretrain_export_flat")


# `split_sentences`: documents in sentences, as Megatron and ModelLink make them of ``--split-sentences``.


SENTENCES_TEXTS = [
    "One sentence only",
    "Dr. Smith came in.  He sat down!\n\nWhy? Nobody knew. ",
    "  It cost 3.50 dollars, i.e. too much. “Really?” she asked.\tYes.",
    "第一句。第二句！ Then English. End",
    "No end here\n\n\nbut a break... and more.\n",
]


@pytest.fixture(scope="module")
def punkt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small Punkt model, in the files of nltk's own data set punkt_tab."""
    nltk = pytest.importorskip("nltk")
    folder = tmp_path_factory.mktemp("nltk_data")
    model = folder / "tokenizers" / "punkt_tab" / "english"
    model.mkdir(parents=True)
    for name, content in {
        "abbrev_types.txt": "dr\ni.e\n",
        "collocations.tab": "",
        "sent_starters.txt": "he\n",
        "ortho_context.tab": "",
    }.items():
        (model / name).write_text(content, "utf-8")
    nltk.data.path.insert(0, str(folder))
    yield folder
    nltk.data.path.remove(str(folder))
    sentences_of.cache_clear()


@pytest.fixture(scope="module")
def cut(punkt: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Published]:
    return made(tmp_path_factory.mktemp("cut"))


def made(folder: Path, **options: Any) -> tuple[Workspace, Published]:
    rows = domain(jsonl(folder / "rows.jsonl", [{"text": text} for text in SENTENCES_TEXTS]), "text")
    options = {"output": {"storage_format": "bin"}, "split_sentences": "english", **options}
    workspace = workspace_in(folder, minimal("pretrain", {"docs": rows}, **options))
    build_stores(workspace, "pretrain_tokens")
    published = workspace.built("pretrain_tokens", "docs")
    return workspace, published


def sentences_reference(text: str) -> list[list[int]]:
    """What ModelLink's handler makes of a document: Punkt with the white space after a sentence kept, each sentence tokenized, the end appended.

    Megatron keeps that white space (--keep-newlines) by a pattern of its own; here it is put back by finding each sentence in the text.
    """
    from nltk.tokenize.punkt import PunktTokenizer

    opened = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    opened.encode_special_tokens = True
    found = PunktTokenizer("english").tokenize(text)
    places, at = [], 0
    for sentence in found:
        at = text.index(sentence, at)
        places.append(at)
        at += len(sentence)
    pieces = [text[low:high] for low, high in zip([0, *places[1:]], [*places[1:], len(text)], strict=True)]
    ids = [opened.encode(piece, add_special_tokens=False).ids for piece in pieces]
    return [*ids[:-1], [*ids[-1], opened.token_to_id("<|endoftext|>")]]


def test_every_sentence_is_tokenized_for_itself(cut: tuple[Workspace, Published]) -> None:
    workspace, published = cut
    store = open_stream(published.directory, "docs_train")
    for number, text in enumerate(SENTENCES_TEXTS):
        ids, starts = store.record(number, "tokens").tolist(), store.record(number, STARTS)
        expected = sentences_reference(text)
        assert ids == [token for sentence in expected for token in sentence]
        assert np.flatnonzero(starts).tolist() == np.cumsum([0, *map(len, expected[:-1])]).tolist()
    assert max(map(len, map(sentences_reference, SENTENCES_TEXTS))) == 4
    assert published.manifest.recipe["split_sentences"]["language"] == "english"
    trials = selftest(workspace, published)
    assert all(each.passed for each in trials) and sum(each.tried > 0 for each in trials) > 5
    assert trace(workspace, "pretrain_tokens", 1).differs == ()


def test_megatrons_index_has_documents_and_sentences(cut: tuple[Workspace, Published], tmp_path: Path) -> None:
    """Read by the description of the format: a sequence for each sentence, and documents that are several sequences."""
    out = export(cut[1], "megatron", tmp_path / "out")
    raw = (out / "train_text_sentence.idx").read_bytes()
    sequences, documents = struct.unpack_from("<QQ", raw, 18)
    lengths = np.frombuffer(raw, "<i4", sequences, 34).tolist()
    borders = np.frombuffer(raw, "<i8", documents, 34 + 12 * sequences).tolist()
    expected = [sentences_reference(text) for text in SENTENCES_TEXTS]
    assert lengths == [len(sentence) for document in expected for sentence in document]
    assert borders == np.cumsum([0, *map(len, expected)]).tolist()
    ids = np.fromfile(out / "train_text_sentence.bin", "<i4").tolist()
    assert ids == [token for document in expected for sentence in document for token in sentence]
    store = load(out)
    assert store.num_records == len(SENTENCES_TEXTS) and store.fetch_record(1, "sequence").tolist() == [
        token for sentence in expected[1] for token in sentence
    ]


def test_a_border_that_is_moved_is_found(punkt: Path, tmp_path: Path) -> None:
    workspace, published = made(tmp_path)
    [file] = published.directory.rglob(f"{STARTS}.bin")
    starts = np.fromfile(file, np.uint8)
    starts[5] ^= 1
    starts.tofile(file)
    assert failing(workspace, resealed(published)) == ["tokenization_identity"]


@pytest.mark.parametrize("append_eod", [True, False])
def test_what_stands_around_a_document_is_of_its_first_and_last_sentence(punkt: Path, tmp_path: Path, append_eod: bool) -> None:
    _, published = made(tmp_path, tokenizer=str(tokenizer(tmp_path / "t", "<|im_start|>")), append_eod=append_eod)
    starts = open_stream(published.directory, "docs_train").record(1, STARTS)
    assert starts[0] == 1 and starts[1] == 0 and starts.sum() == 4


def test_what_cannot_be_cut_stops(punkt: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nltk finds no Punkt model 'klingon'\. Put its data set punkt_tab"):
        made(tmp_path, split_sentences="klingon")
    with pytest.raises(PrepAssetsError, match="sentences have no order"):
        made(tmp_path, preprocessing={"fim": {"rate": 0.5}})
    rows = [{"semantic_data_array": [{"content": [{"a": "Not this."}, {"b": " But this."}], "semantic_loss_weight": [0, 1]}]}]
    own = domain(jsonl(tmp_path / "rows.jsonl", rows), "semantic")
    with pytest.raises(PrepAssetsError, match="would cut documents through them"):
        build_stores(workspace_in(tmp_path / "b", minimal("pretrain", {"docs": own}, split_sentences="english")), "pretrain_tokens")
