"""The sample data and their tokenizer, as tools/make_samples writes them."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from make_samples.samples import write_samples
from make_samples.tokenizer import write_tokenizer

from prep_assets_tests.conftest import zstd
from prep_assets_tests.effort import examples

# Readers of the shipped sample files that share no code with the package.


CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def plain_bytes(path: Path) -> bytes:
    content = path.read_bytes()
    match path.suffix:
        case ".gz":
            return gzip.decompress(content)
        case ".zst":
            return zstd.decompress(content)
    return content


def strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict() | list():
            for item in value.values() if isinstance(value, dict) else value:
                yield from strings(item)


@pytest.fixture(scope="session")
def shipped() -> Path:
    """The folder `configs` of the repository."""
    return CONFIGS


@pytest.fixture(scope="session")
def content() -> Callable[[Path], bytes]:
    """What is inside a file, decompressed."""
    return plain_bytes


@pytest.fixture(scope="session")
def rows() -> Callable[[str], list[Any]]:
    """All rows of the shipped sample file of that name; the lines of a text file."""

    def read(name: str) -> list[Any]:
        text = plain_bytes(CONFIGS / "samples" / name).decode()
        if name == "alpaca.json":
            return list(json.loads(text))
        lines = text.removesuffix("\n").split("\n")
        return lines if name == "notes.txt" else [json.loads(line) for line in lines]

    return read


@pytest.fixture(scope="session")
def every_text(rows: Callable[[str], list[Any]]) -> list[str]:
    """Every string value of every shipped sample row."""
    names = sorted(path.name for path in (CONFIGS / "samples").iterdir())
    return [text for name in names for text in strings(rows(name))]


# The word problems are right: every calculator note is worked out again by a second evaluator.


Rows = Callable[[str], list[Any]]


def worked_out(expression: str) -> Fraction:
    """The value of a note in exact fractions."""
    assert re.fullmatch(r"[-+*/().\d]+", expression), f"{expression!r} holds something else than arithmetic"
    return Fraction(eval(re.sub(r"\d+(?:\.\d+)?", r"Fraction('\g<0>')", expression)))


def wrong_notes(answer: str) -> list[str]:
    """What is wrong in an answer: notes that do not hold or are not repeated in the text, a final number that is not the last result."""
    found = []
    notes = re.findall(r"<<([^<>=]+)=([^<>]+)>>(-?\d+(?:\.\d+)?)", answer)
    if len(notes) != answer.count("<<") or not notes:
        found.append("a note is malformed")
    found += [f"{left}={right}" for left, right, _ in notes if worked_out(left) != Fraction(right)]
    found += [f"{right} is followed by {shown}" for _, right, shown in notes if right != shown]
    final = re.fullmatch(r"-?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?", answer.rpartition("\n#### ")[2])
    if final is None or not notes or Fraction(final[0].replace(",", "")) != Fraction(notes[-1][1]):
        found.append("the final number is not the last result")
    return found


@pytest.mark.parametrize(
    "answer",
    [
        "It is <<2*3=7>>7.\n#### 7",
        "It is <<2*3=6>>7.\n#### 6",
        "It is <<2*3=6>>6.\n#### 8",
        "It is <<2*3=6>>6.\n#### 06,0",
        "It is 6.\n#### 6",
        "It is <<2*3>>6.\n#### 6",
    ],
)
def test_a_wrong_answer_is_noticed(answer: str) -> None:
    assert wrong_notes(answer)


def test_every_note_and_every_final_number_is_right(rows: Rows) -> None:
    assert [(row["question"], wrong_notes(row["answer"])) for row in rows("gsm8k.jsonl") if wrong_notes(row["answer"])] == []


def test_no_two_rows_share_thirteen_words_in_a_row(rows: Rows) -> None:
    owner: dict[tuple[str, ...], int] = {}
    for number, row in enumerate(rows("gsm8k.jsonl")):
        words = re.findall(r"\w+", f"{row['question']} {row['answer']}".lower())
        for start in range(len(words) - 12):
            run = tuple(words[start : start + 13])
            assert owner.setdefault(run, number) == number, " ".join(run)


# Every sample file has the form of the public data set that it stands for.


CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>")


@pytest.mark.parametrize(
    ("name", "fields", "least"),
    [
        ("alpaca.json", ["instruction", "input", "output"], 110),
        ("gsm8k.jsonl", ["question", "answer"], 200),
        ("dolly.jsonl", ["instruction", "context", "response", "category"], 55),
        ("chats.jsonl", ["messages"], 55),
        ("docs.jsonl.zst", ["text"], 150),
        ("hh.jsonl.gz", ["chosen", "rejected"], 75),
        ("ultrafeedback.jsonl", ["prompt", "chosen", "rejected", "score_chosen", "score_rejected"], 55),
    ],
)
def test_the_rows_have_the_public_fields_and_differ(rows: Rows, name: str, fields: list[str], least: int) -> None:
    found = rows(name)
    assert len(found) >= least
    assert all(list(row) == fields for row in found)
    assert len({json.dumps(row) for row in found}) == len(found)


def test_no_text_is_empty_padded_or_unfinished(every_text: list[str]) -> None:
    # HH dialogues begin with two newlines, and an optional input or context may be empty; nothing else is padded.
    assert not [text for text in every_text if text.removeprefix("\n\n").strip() != text.removeprefix("\n\n")]
    assert not [text for text in every_text if any(token in text for token in CONTROL_TOKENS)]
    assert not [text for text in every_text if "  " in text and "    " not in text], "two blanks that are no indentation"


def test_chats_alternate_and_end_with_the_assistant(rows: Rows) -> None:
    rounds = []
    for row in rows("chats.jsonl"):
        roles = [message["role"] for message in row["messages"]]
        assert all(list(message) == ["role", "content"] and message["content"] for message in row["messages"])
        turns = roles[1:] if roles[0] == "system" else roles
        assert turns == ["user", "assistant"] * (len(turns) // 2)
        rounds.append(len(turns) // 2)
    assert set(rounds) == {1, 2, 3, 4, 5}
    assert 10 < sum(row["messages"][0]["role"] == "system" for row in rows("chats.jsonl")) < 50


def test_hh_pairs_share_the_prompt_and_differ_in_the_last_answer(rows: Rows) -> None:
    prompts = []
    for row in rows("hh.jsonl.gz"):
        prompt, marker, chosen = row["chosen"].rpartition("\n\nAssistant: ")
        other, _, rejected = row["rejected"].rpartition("\n\nAssistant: ")
        assert marker
        assert prompt == other
        assert prompt.startswith("\n\nHuman: ")
        assert prompt.count("\n\nHuman: ") == prompt.count("\n\nAssistant: ") + 1
        assert chosen and rejected and chosen != rejected
        assert "\n\nHuman:" not in chosen + rejected
        prompts.append(prompt)
    assert len(set(prompts)) == len(prompts)
    assert 10 < sum(prompt.count("\n\nHuman: ") > 1 for prompt in prompts) < 50


def test_ultrafeedback_answers_start_with_the_prompt_and_the_chosen_scores_higher(rows: Rows) -> None:
    found = rows("ultrafeedback.jsonl")
    for row in found:
        for side in ("chosen", "rejected"):
            assert [message["role"] for message in row[side]] == ["user", "assistant"]
            assert row[side][0]["content"] == row["prompt"]
        assert row["chosen"][1]["content"] != row["rejected"][1]["content"]
        assert 10 >= row["score_chosen"] > row["score_rejected"] >= 1
    assert len({row["prompt"] for row in found}) == len(found)


# The shipped tokenizer opens with transformers, gives every text back, and its template marks what the assistant says.


TRAINED_WITH = "0.23.3"
SPECIAL = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2, "<|pad|>": 3}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(CONFIGS / "tokenizer")


def test_training_again_gives_the_shipped_tokenizer(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, CONFIGS / "samples")
    files = ["tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in (CONFIGS / "tokenizer").iterdir()) == files
    assert (tmp_path / files[1]).read_bytes() == (CONFIGS / "tokenizer" / files[1]).read_bytes()
    if tokenizers.__version__ == TRAINED_WITH:
        assert (tmp_path / files[0]).read_bytes() == (CONFIGS / "tokenizer" / files[0]).read_bytes()
    trained = tokenizers.Tokenizer.from_file(str(tmp_path / files[0]))
    assert trained.get_vocab_size() == 4096
    assert trained.decode(trained.encode("Grüße, 你好 🎉\n").ids) == "Grüße, 你好 🎉\n"


def test_the_vocabulary_is_special_tokens_then_bytes_then_merges(tokenizer: Any) -> None:
    model = json.loads((CONFIGS / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    assert len(tokenizer) == len(model["vocab"]) == 4096 == 4 + 256 + len(model["merges"])
    assert sorted(model["vocab"].values()) == list(range(4096))
    assert {token: model["vocab"][token] for token in SPECIAL} == SPECIAL
    assert all(len(token) == 1 for token, number in model["vocab"].items() if 4 <= number < 260)


def test_every_sample_text_comes_back(tokenizer: Any, every_text: list[str]) -> None:
    assert len(every_text) > 2000
    assert [text for text in every_text if tokenizer.decode(tokenizer.encode(text)) != text] == []


@cache
def opened() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(CONFIGS / "tokenizer" / "tokenizer.json"))


@given(st.text())
@settings(max_examples=examples(100), deadline=None)
def test_any_text_comes_back(text: str) -> None:
    assert opened().decode(opened().encode(text).ids, skip_special_tokens=False) == text


def marked_texts(tokenizer: Any, messages: list[dict[str, str]]) -> list[str]:
    """The text of every unbroken run of marked tokens."""
    encoded = tokenizer.apply_chat_template(messages, return_assistant_tokens_mask=True, return_dict=True)
    pairs = zip(encoded["input_ids"], encoded["assistant_masks"], strict=True)
    return [tokenizer.decode([number for number, _ in run]) for marked, run in groupby(pairs, key=lambda pair: pair[1]) if marked]


def answers(messages: list[dict[str, str]]) -> list[str]:
    return [message["content"] + "<|im_end|>" for message in messages if message["role"] == "assistant"]


def test_the_mask_marks_the_answers_and_their_stop_tokens(tokenizer: Any, rows: Callable[[str], list[Any]]) -> None:
    for row in rows("chats.jsonl"):
        assert marked_texts(tokenizer, row["messages"]) == answers(row["messages"])


def test_the_mask_marks_an_answer_that_repeats_the_question_once_and_an_empty_one_by_its_stop_token(tokenizer: Any) -> None:
    messages = [
        {"role": "user", "content": "ping"},
        {"role": "assistant", "content": "ping"},
        {"role": "user", "content": "assistant"},
        {"role": "assistant", "content": ""},
    ]
    assert marked_texts(tokenizer, messages) == ["ping<|im_end|>", "<|im_end|>"]


# The shipped files are what the generators write, on every machine and in every process.


ROOT = Path(__file__).resolve().parents[2]
NAMES = ["alpaca.json", "chats.jsonl", "docs.jsonl.zst", "dolly.jsonl", "gsm8k.jsonl", "hh.jsonl.gz", "notes.txt", "ultrafeedback.jsonl"]


def test_the_shipped_samples_are_those_that_the_generators_write(tmp_path: Path, shipped: Path, content: Callable[[Path], bytes]) -> None:
    write_samples(tmp_path)
    assert sorted(path.name for path in (shipped / "samples").iterdir()) == NAMES
    assert sorted(path.name for path in tmp_path.iterdir()) == NAMES
    for name in NAMES:
        # Compressed bytes depend on the version of the compression library, so the content is what is compared.
        assert content(tmp_path / name) == content(shipped / "samples" / name), name


def test_the_gzip_header_holds_no_time_and_no_name(shipped: Path) -> None:
    header = (shipped / "samples" / "hh.jsonl.gz").read_bytes()[:10]
    assert header[4:8] == b"\0\0\0\0"  # RFC 1952: MTIME
    assert header[3] == 0  # RFC 1952: FLG, no FNAME


@pytest.mark.cli
def test_two_processes_with_other_hash_seeds_zones_and_threads_write_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for seed, zone, threads in (("1", "UTC", "1"), ("4242", "Asia/Tokyo", "2")):
        folder = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "RAYON_NUM_THREADS": threads, "PYTHONPATH": str(ROOT / "tools")}
        subprocess.run([sys.executable, "-m", "make_samples", str(folder)], check=True, env=environment, stdout=subprocess.DEVNULL)
        written.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert len(written[0]) == len(NAMES) + 2
    assert written[0] == written[1]
