"""`split_sentences`: documents in sentences, as Megatron and ModelLink make them of ``--split-sentences``."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from prep_assets.engine import build
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.explain.trace import trace
from prep_assets.exports import export
from prep_assets.graph.selftest import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.open import open_store
from prep_assets.stores.tokens import open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets.text.documents import STARTS, Sentences, sentences_of
from prep_assets_tests.graph.test_bos import tokenizer
from prep_assets_tests.graph.workspaces import TOKENIZER, domain, failing, jsonl, minimal, resealed, workspace_in

TEXTS = [
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
    rows = domain(jsonl(folder / "rows.jsonl", [{"text": text} for text in TEXTS]), "text")
    options = {"output": {"storage_format": "bin"}, "split_sentences": "english", **options}
    workspace = workspace_in(folder, minimal("pretrain", {"docs": rows}, **options))
    build(workspace, "pretrain_tokens")
    published = workspace.published("pretrain_tokens", "docs")
    assert published is not None
    return workspace, published


def reference(text: str) -> list[list[int]]:
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
    store = open_tokens(published.directory, "docs_train")
    assert failing(workspace, published) == []
    for number, text in enumerate(TEXTS):
        ids, starts = store.record(number, "tokens").tolist(), store.record(number, STARTS)
        expected = reference(text)
        assert ids == [token for sentence in expected for token in sentence]
        assert np.flatnonzero(starts).tolist() == np.cumsum([0, *map(len, expected[:-1])]).tolist()
    assert max(map(len, map(reference, TEXTS))) == 4
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
    expected = [reference(text) for text in TEXTS]
    assert lengths == [len(sentence) for document in expected for sentence in document]
    assert borders == np.cumsum([0, *map(len, expected)]).tolist()
    ids = np.fromfile(out / "train_text_sentence.bin", "<i4").tolist()
    assert ids == [token for document in expected for sentence in document for token in sentence]
    store = open_store(out)
    assert store.num_records == len(TEXTS) and store.fetch_record(1, "sequence").tolist() == [
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
    workspace, published = made(tmp_path, tokenizer=str(tokenizer(tmp_path / "t", "<|im_start|>")), append_eod=append_eod)
    assert failing(workspace, published) == []
    starts = open_tokens(published.directory, "docs_train").record(1, STARTS)
    assert starts[0] == 1 and starts[1] == 0 and starts.sum() == 4


def test_sentences_are_the_text(punkt: Path) -> None:
    for text in [*TEXTS, " ", "a", "\n\n. ! ?"]:
        assert "".join(Sentences("english").cut(text)) == text


def test_what_cannot_be_cut_stops(punkt: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nltk finds no Punkt model 'klingon'\. Put its data set punkt_tab"):
        made(tmp_path, split_sentences="klingon")
    with pytest.raises(PrepAssetsError, match="sentences have no order"):
        made(tmp_path, preprocessing={"fim": {"rate": 0.5}})
    rows = [{"semantic_data_array": [{"content": [{"a": "Not this."}, {"b": " But this."}], "semantic_loss_weight": [0, 1]}]}]
    own = domain(jsonl(tmp_path / "rows.jsonl", rows), "semantic")
    with pytest.raises(PrepAssetsError, match="would cut documents through them"):
        build(workspace_in(tmp_path / "b", minimal("pretrain", {"docs": own}, split_sentences="english")), "pretrain_tokens")
