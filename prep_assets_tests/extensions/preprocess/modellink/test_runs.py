"""A run again: what is there is left alone, what comes from something else is replaced on request alone. What a run says of long rows and its pace."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from pathlib import Path

import pytest

from prep_assets.errors import without_secrets
from prep_assets_tests.docs.pages import DOCS, blocks
from prep_assets_tests.extensions.preprocess.modellink.conftest import INSTRUCTION, Call, files, names, pair, plain, whole, write
from prep_assets_tests.graph.workspaces import jsonl

TEXTS = [f"Text {n}, " + "and more " * n for n in range(6)]
WORDS = ("preprocess", "--input", "rows.jsonl", "--output-prefix", "out/x")
THERE = "there already, made from these flags, rows and tokenizer: nothing to do"


@pytest.fixture
def done(here: Path, call: Call) -> Path:
    """A finished run; its folder."""
    jsonl(here / "rows.jsonl", [{"text": text} for text in TEXTS])
    code, said = call(*WORDS)
    assert code == 0 and THERE not in said, said
    return here / "out"


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Identity and time of every file below a folder."""
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*.*") if path.is_file()}


def test_a_finished_run_is_found(done: Path, call: Call) -> None:
    before = {name: stamp for name, stamp in stamps(done).items() if "_document" in name or "manifest" in name}
    code, said = call(*WORDS, "--workers", 2, "--log-interval", 5)
    assert code == 0 and THERE in said
    assert {name: stamps(done)[name] for name in before} == before


def test_other_flags_need_a_word(done: Path, call: Call, llama: Path) -> None:
    before, config = stamps(done), (done / "x.prep-assets" / "configs" / "pretrain.yaml").read_text("utf-8")
    code, said = call(*WORDS, "--append-eod")
    assert code == 1 and "--overwrite" in said
    assert "x_text_document.bin, x_text_document.idx" in said and "(pretrain_tokens[text]: changed: append_eod)" in said
    assert stamps(done).keys() == before.keys() and pair(done / "x_text_document")[0] == whole(llama, TEXTS[0])
    assert (done / "x.prep-assets" / "configs" / "pretrain.yaml").read_text("utf-8") == config
    assert THERE in call(*WORDS)[1]
    assert call(*WORDS, "--append-eod", "--overwrite")[0] == 0
    assert pair(done / "x_text_document")[0][:-1] == whole(llama, TEXTS[0])
    assert THERE in call(*WORDS, "--append-eod")[1]


def test_other_rows_need_a_word(done: Path, call: Call) -> None:
    jsonl(done.parent / "rows.jsonl", [{"text": "Changed."}])
    assert call(*WORDS)[0] == 1
    assert call(*WORDS, "--overwrite")[0] == 0
    assert len(pair(done / "x_text_document")) == 1


def test_files_of_somebody_else_stay(here: Path, call: Call) -> None:
    jsonl(here / "rows.jsonl", [{"text": text} for text in TEXTS])
    (here / "out").mkdir()
    (here / "out" / "x_text_document.bin").write_bytes(b"theirs")
    code, said = call(*WORDS)
    assert code == 1 and "x_text_document.bin in" in said
    assert (here / "out" / "x_text_document.bin").read_bytes() == b"theirs" and not list((here / "out").rglob("versions"))


def test_a_lost_file_comes_back(done: Path, call: Call) -> None:
    expected = pair(done / "x_text_document")
    (done / "x_text_document.idx").unlink()
    code, said = call(*WORDS)
    assert code == 0 and THERE not in said
    assert pair(done / "x_text_document") == expected


def test_a_spoiled_file_is_not_taken_for_the_result(done: Path, call: Call) -> None:
    data = done / "x_text_document.bin"
    spoiled = bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:]
    data.unlink()
    data.write_bytes(spoiled)
    assert call(*WORDS)[0] == 1


@pytest.mark.parametrize("spoil", ["wb", "ab"])
def test_a_file_that_was_written_into_is_not_taken_for_the_result(done: Path, call: Call, llama: Path, spoil: str) -> None:
    """As ModelLink's own script would: the file beside the prefix is also that of the store, which is then made anew."""
    with (done / "x_text_document.bin").open(spoil) as file:
        file.write(b"\1\0\0\0")
    code, said = call(*WORDS)
    assert code == 1 and "x_text_document.bin" in said
    assert call(*WORDS, "--overwrite")[0] == 0
    assert pair(done / "x_text_document") == [whole(llama, text) for text in TEXTS]
    assert THERE in call(*WORDS)[1]


def test_keys_of_another_kind_are_not_left_beside(here: Path, call: Call) -> None:
    """A trainer takes every pair of the prefix: labels of pairs beside input_ids of instructions would be one data set."""
    write(here / "rows.json", [{"instruction": "Say it", "input": "", "output": "it"}])
    (here / "out").mkdir()
    (here / "out" / "x_packed_chosen_labels_document.idx").write_bytes(b"old")
    words = ("preprocess", "--input", "rows.json", "--output-prefix", "out/x", "--handler-name", "GeneralInstructionHandler")
    assert call(*words)[0] == 1
    assert call(*words, "--overwrite")[0] == 0
    assert names(here / "out") == files("x", *(f"packed_{key}" for key in INSTRUCTION))


def test_pretraining_and_sft_of_one_prefix_stand_side_by_side(done: Path, call: Call) -> None:
    """As RUN_TYPE=pretrain and RUN_TYPE=sft write into one folder."""
    write(done.parent / "rows.json", [{"instruction": "Say it", "input": "", "output": "it"}])
    sft = ("preprocess", "--input", "rows.json", "--output-prefix", "out/x", "--handler-name", "GeneralInstructionHandler")
    assert call(*sft)[0] == 0
    assert names(done) == files("x", "text", *(f"packed_{key}" for key in INSTRUCTION))
    assert THERE in call(*WORDS)[1] and THERE in call(*sft)[1]


def test_without_hard_links_files_are_copied(here: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    jsonl(here / "rows.jsonl", [{"text": text} for text in TEXTS])
    monkeypatch.setattr(os, "link", refuse)
    assert call(*WORDS)[0] == 0
    assert (here / "out" / "x_text_document.bin").stat().st_nlink == 1
    assert THERE in call(*WORDS)[1]


@pytest.mark.parametrize("append_eod", [False, True])
def test_a_row_that_is_longer_is_named(here: Path, llama: Path, call: Call, append_eod: bool) -> None:
    """Its begin-of-text and end-of-text token count, as they do in ModelLink."""
    lengths = [len(whole(llama, text)) + append_eod for text in TEXTS]
    limit = lengths[3]
    jsonl(here / "rows.jsonl", [{"text": text} for text in TEXTS])
    words = (*WORDS, "--seq-length", limit, *(["--append-eod"] if append_eod else []))
    code, said = call(*words)
    assert code == 0, said
    assert [len(each) for each in pair(here / "out" / "x_text_document")] == lengths[:4]
    assert f"2 rows longer than --seq-length {limit}, left out:" in said
    around = 1 + append_eod
    assert f"max_seq_len is {limit - around}: it counts a text without its begin-of-text and end-of-text token" in said
    for number in (4, 5):
        assert f"rows.jsonl:{number + 1}: {lengths[number] - around} tokens, max_seq_len is {limit - around}" in said
    assert re.search(
        r"PREP_ASSETS_CONFIG_DIR=\S+/x\.prep-assets/configs PREP_ASSETS_STORE_DIR=\S+ prep-assets quarantine pretrain_tokens", said
    )
    assert "rows.jsonl:6" in call(*words)[1]


def test_a_chat_that_is_longer_is_named(here: Path, call: Call) -> None:
    rows = [{"instruction": "Say it", "input": "now", "output": "it " * (2 * n + 1)} for n in range(6)]
    words = ("preprocess", "--input", write(here / "rows.json", rows), "--handler-name", "GeneralInstructionHandler", "--output-prefix")
    assert call(*words, "out/all")[0] == 0
    lengths = [len(each) for each in pair(here / "out" / "all_packed_input_ids_document")]
    code, said = call(*words, "out/x", "--seq-length", lengths[3])
    assert code == 0 and f"rows.json:5: {lengths[4]} tokens, max_seq_len is {lengths[3]}" in said
    assert [len(each) for each in pair(here / "out" / "x_packed_labels_document")] == lengths[:4]


def test_log_interval(here: Path, call: Call) -> None:
    """About every 500 of 3,000 rows, in blocks of a megabyte."""
    jsonl(here / "rows.jsonl", [{"text": f"{n} " + "some words and others " * 60} for n in range(3000)])
    code, said = call(*WORDS, "--log-interval", 500)
    assert code == 0, said
    found = [int(each.replace(",", "")) for each in re.findall(r"about ([\d,]+) of 3,000 rows: tokenize text", said)]
    assert len(found) >= 3 and found == sorted(found) and found[-1] == 3000
    assert "about" not in call("preprocess", "--input", "rows.jsonl", "--output-prefix", "out/y", "--max-samples", 3)[1]


SCRIPT = next(block for block in blocks(DOCS / "preprocess.md", "bash") if "RUN_TYPE" in block)


def test_the_script_of_the_page_goes_by_the_environment(here: Path, llama: Path, call: Call) -> None:
    """RUN_TYPE, ORIGINAL_TRAIN_DATA_PATH and the others, as ModelLink's 1_preprocess_data.sh has them. The words that it makes of them write the files."""
    prefix = "processed_for_input/llama2-13b/data"
    values = {
        "ORIGINAL_TRAIN_DATA_PATH": "rows.json",
        "TOKENIZER_PATH": str(llama),
        "PROCESSED_DATA_PREFIX": prefix,
        "TOKENIZER_TYPE": "PretrainedFromHF",
        "SEQ_LEN": "4096",
    }
    (here / "bin").mkdir()
    (here / "bin" / "prep-assets").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (here / "bin" / "prep-assets").chmod(0o755)

    def script(run_type: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **values, "RUN_TYPE": run_type, "PATH": f"{here / 'bin'}:{os.environ['PATH']}"}
        return subprocess.run(["bash", "-eu", "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)

    words = {kind: script(kind).stdout.splitlines() for kind in ("pretrain", "sft", "lora")}
    assert words["sft"] == words["lora"] != words["pretrain"]
    wrong = script("pretrian")
    assert wrong.returncode != 0 and "pretrian" in wrong.stderr
    made: list[str] = []
    for kind, row, keys in (
        ("pretrain", {"text": "A text."}, ["text"]),
        ("sft", {"instruction": "Say it", "input": "now", "output": "it"}, [f"packed_{key}" for key in INSTRUCTION]),
    ):
        write(here / "rows.json", [row])
        for again in (False, True):
            code, said = call(*words[kind], tokenizer=None)
            assert code == 0 and (THERE in said) == again, said
        made += keys
        assert names((here / prefix).parent) == files("data", *made)


def test_the_environment_of_that_script_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its TOKENIZER_PATH is no token: an error that names the folder has to show it."""
    monkeypatch.setenv("TOKENIZER_PATH", "/models/llama2-13b")
    monkeypatch.setenv("SOME_TOKEN", "a-very-secret-value")
    assert without_secrets("/models/llama2-13b a-very-secret-value") == "/models/llama2-13b …"


def test_ids_are_those_of_the_text_alone_for_a_tokenizer_that_adds_nothing(here: Path, call: Call) -> None:
    shipped = Path(__file__).resolve().parents[4] / "configs" / "tokenizer"
    jsonl(here / "rows.jsonl", [{"text": text} for text in TEXTS])
    assert call(*WORDS, tokenizer=shipped)[0] == 0
    assert pair(here / "out" / "x_text_document") == [plain(shipped, text) for text in TEXTS]
