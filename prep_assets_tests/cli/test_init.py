"""`init`: from files to a looked-at row, and what it says where it cannot."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.config.models import FAMILIES, TRAINED
from prep_assets.extensions.start import command as start
from prep_assets_tests.graph.workspaces import SAMPLES, TOKENIZER, jsonl

FLAGS = ("--tokenizer", TOKENIZER)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(tmp_path / "stores"))
    for name in ("gsm8k.jsonl", "alpaca.json", "chats.jsonl", "notes.txt"):
        (tmp_path / name).write_bytes((SAMPLES / name).read_bytes())
    jsonl(tmp_path / "questions.jsonl", [{"query": f"What is {n}?", "pos": [f"It is {n}."], "neg": ["No."]} for n in range(9)])
    return tmp_path


def init(*words: str, said: str | None = None) -> Any:
    return CliRunner().invoke(app, ["init", *words], input=said)


@pytest.mark.parametrize(
    ("family", "files", "shown"),
    [
        ("sft", ["alpaca.json", "chats.jsonl"], "sft_packed row 0 of"),
        ("rl", ["gsm8k.jsonl"], '"gold"'),
        ("pretrain", ["notes.txt"], "no loss mask"),
        ("contrastive", ["questions.jsonl"], '"positives"'),
    ],
)
def test_from_files_to_a_row(here: Path, family: str, files: list[str], shown: str) -> None:
    result = init(*files, *FLAGS, "--train", family)
    assert result.exit_code == 0, result.output
    assert shown in result.output
    path = here / "configs" / f"{family}.yaml"
    assert path.read_text("utf-8").startswith(f"# yaml-language-server: $schema=.schemas/{family}.json\n")
    values = yaml.safe_load(path.read_text("utf-8"))
    assert [*values["domains"]] == [file.partition(".")[0] for file in files]
    described = json.loads((here / "configs" / ".schemas" / f"{family}.json").read_text("utf-8"))
    assert [*Draft202012Validator(described).iter_errors(values)] == []
    again = init(*files, *FLAGS, "--train", family)
    assert again.exit_code == 1 and "is there already" in again.output


def test_a_second_configuration_has_its_own_stores(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREP_ASSETS_STORE_DIR")
    result = init("notes.txt", *FLAGS, "--train", "pretrain", "--out", "mine")
    assert result.exit_code == 0, result.output
    [named] = re.findall(r"^next: (.*) prep-assets (.*)$", result.output, re.MULTILINE)
    for word in named[0].split():
        monkeypatch.setenv(*word.split("="))
    assert CliRunner().invoke(app, named[1].split()).exit_code == 0
    assert sorted(path.name for path in here.iterdir() if path.is_dir()) == ["mine", "reports"]


def test_what_no_option_says_is_asked_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["chats.jsonl gsm8k.jsonl", "sft", TOKENIZER, "trl"])
    monkeypatch.setattr(start, "_ask", lambda option, question, read, default=None: read(next(answers)))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    result = CliRunner().invoke(app, ["init", "--no-build", "--for", "trl"])
    assert result.exit_code == 0, result.output
    values = yaml.safe_load((here / "configs" / "sft.yaml").read_text("utf-8"))
    assert values["exports"] == {"trl": {"from": "sft_packed", "to": "hf_arrow", "options": {"layout": "trl"}}}
    assert "next: PREP_ASSETS_CONFIG_DIR=configs prep-assets build sft_packed" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "FILE is required when stdin is not a terminal"),
        (("chats.jsonl", "--train", "sft"), "--tokenizer is required when stdin is not a terminal"),
        (("chats.jsonl", "--train", "sftt", *FLAGS), f"--train 'sftt' is not one of {', '.join(TRAINED)}; did you mean 'sft'?"),
        (
            ("chats.jsonl", "--train", "preference", *FLAGS),
            "chats.jsonl: no schema of preference fits its rows; of other families these do: messages (--train pretrain), messages (--train sft)",
        ),
        (
            ("notes.txt", "--train", "sft", *FLAGS),
            "notes.txt: no schema of sft fits its rows; of other families these do: text (--train pretrain)",
        ),
        (("chats.jsonl", "--train", "sft", "--for", "trll", *FLAGS), "no trainer 'trll'; did you mean 'trl'?"),
        (("chats.jsonl", "--train", "sft", "--for", "litgpt", *FLAGS), "litgpt reads pretrain_tokens, which is not made of sft.yaml"),
        (("nowhere.jsonl", "--train", "sft", *FLAGS), "nowhere.jsonl"),
    ],
)
def test_mistakes_write_nothing(here: Path, words: tuple[str, ...], message: str) -> None:
    result = init(*words)
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
    assert not (here / "configs").exists()


def test_json_schema(here: Path) -> None:
    printed = CliRunner().invoke(app, ["json-schema", "eval"])
    assert json.loads(printed.stdout)["title"] == "Eval"
    assert CliRunner().invoke(app, ["json-schema", "--out", "s"]).exit_code == 0
    assert sorted(path.stem for path in (here / "s").iterdir()) == sorted(FAMILIES)


def test_a_field_is_left_out_only_by_agreement(here: Path) -> None:
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    jsonl(here / "mine.jsonl", [{"messages": chat, "system_note": "A pirate."}, {"messages": chat, "mood": "good"}])
    words = ("mine.jsonl", "--train", "sft", "--template", "chatml", *FLAGS)
    result = init(*words)
    assert result.exit_code == 1 and not (here / "configs").exists()
    assert "left out: system_note, 1 of 2 rows, e.g. 'A pirate.'" in result.output and "leave them out: --ignore mood\n" in result.output
    agreed = init(*words, "--no-build", "--ignore", "system_note", "--ignore", "mood")
    assert agreed.exit_code == 0, agreed.output
    assert yaml.safe_load((here / "configs" / "sft.yaml").read_text("utf-8"))["domains"]["mine"]["ignore"] == ["system_note", "mood"]


def test_what_would_not_build_is_said_before_anything_is_written(here: Path) -> None:
    result = init("chats.jsonl", "--train", "sft", "--tokenizer", "nowhere", "--template", "chatml")
    assert result.exit_code == 1 and "nothing is written, as this would not build:\n- tokenizer '" in result.output
    result = init("chats.jsonl", "--train", "sft", "--template", "nosuch", *FLAGS)
    assert result.exit_code == 1 and "nosuch" in result.output and "Add --template NAME" in result.output
    assert sorted(path.name for path in here.iterdir() if path.name.startswith((".", "configs"))) == []


def test_a_failed_build_leaves_nothing_that_blocks_the_next_init(here: Path) -> None:
    jsonl(here / "long.jsonl", [{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a " * 99}]}])
    words = ("long.jsonl", "--train", "sft", "--template", "chatml", *FLAGS)
    failed = init(*words, "--row-len", "16")
    assert failed.exit_code == 1 and "is removed again" in failed.output and not (here / "configs").exists()
    assert init(*words).exit_code == 0


def test_a_typo_is_asked_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["nofile.jsonl", "chats.jsonl"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(start.typer, "prompt", lambda *_, **__: next(answers))
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    assert [*start._ask("FILE", "Which files?", lambda words: {word: start._sniffed(word) for word in words.split()})] == ["chats.jsonl"]


@pytest.mark.parametrize(
    ("row", "family"),
    [
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, "sft"),
        ({"text": "One."}, "pretrain"),
        ({"prompt": "q", "chosen": "a", "rejected": "b"}, "preference"),
        ({"prompt": "q", "gold": "7"}, "rl"),
        ({"query": "q", "pos": ["a"], "neg": ["b"]}, "contrastive"),
    ],
)
def test_the_default_family_is_the_one_that_the_rows_fit(here: Path, row: dict[str, Any], family: str) -> None:
    jsonl(here / "mine.jsonl", [row])
    assert start._likely({"mine.jsonl": start._sniffed("mine.jsonl")}) == family


@pytest.mark.parametrize("folder", ["corpus", "corpus/**"])
def test_files_of_a_folder_that_no_format_has_are_named(here: Path, folder: str) -> None:
    (here / "corpus" / "sub").mkdir(parents=True)
    (here / "corpus" / "one.txt").write_text("A line.\n", "utf-8")
    (here / "corpus" / "sub" / "two.md").write_text("# Two\n", "utf-8")
    result = init(folder, *FLAGS, "--train", "pretrain", "--no-build")
    assert result.exit_code == 0, result.output
    assert "1 file of ../" in result.output and "not read" in result.output and "two.md" in result.output


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("data/chats.jsonl.gz", "chats"),
        ("corpus/", "corpus"),
        ("corpus/**", "data"),
        (f"hub://acme/chats@{'a' * 40}", "chats"),
        (f"hub://acme/chats@{'a' * 40}/en/*.parquet", "data"),
    ],
)
def test_domains_are_called_as_their_files(address: str, name: str) -> None:
    assert start.domain_of_address(address) == name


def test_a_tokenizer_that_is_no_folder_is_looked_up_in_the_configuration(here: Path) -> None:
    result = init("chats.jsonl", "--tokenizer", "gpt2", "--train", "sft")
    assert (result.exit_code, "'gpt2' is not a directory under configs;" in result.output) == (1, True)


def test_a_packed_table_with_another_template_is_a_variant(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy of the error is run, word for word."""
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", "configs")
    monkeypatch.setenv("PREP_ASSETS_VARIANT", "")  # which --variant sets
    made = init("chats.jsonl", *FLAGS, "--train", "sft", "--no-build")
    assert (made.exit_code, "next: prep-assets build sft_packed" in made.output) == (0, True)
    result = CliRunner().invoke(app, ["build", "sft_packed", "--set", "sft.template=chatml"])
    commands = re.findall(r"prep-assets ((?:impact|--variant)[^.]*(?:\.template=VALUE)?)", " ".join(result.output.split()))
    assert [command.partition(" ")[0] for command in commands] == ["impact", "--variant"]
    (here / "configs" / "sft.NAME.yaml").write_text("template: chatml\n", "utf-8")
    for command in commands:
        said = CliRunner().invoke(app, command.replace("VALUE", "chatml").split())
        assert said.exit_code == 0, said.output


def test_labelled_answers_without_a_pair_are_built_shown_and_exported(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonl(here / "kto.jsonl", [{"prompt": f"{n}?", "completion": f"{n}.", "label": n > 1} for n in range(4)])
    result = init("kto.jsonl", *FLAGS, "--train", "kto")
    assert result.exit_code == 0, result.output
    assert '"completion"' in result.output and "unpaired.jsonl" in result.output
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", "configs")
    words = ["export", "preferences", "--to", "hf_arrow", "--out", "out"]
    refused = CliRunner().invoke(app, words)
    [remedy] = re.findall(r"It has rows in: (--stream unpaired)$", refused.stderr.strip())
    assert refused.exit_code == 1 and CliRunner().invoke(app, [*words, *remedy.split()]).exit_code == 0


def test_scored_responses_are_built_as_groups(here: Path) -> None:
    jsonl(here / "scored.jsonl", [{"prompt": f"{n}?", "responses": [f"{n}.", "?"], "rewards": [1, 0]} for n in range(4)])
    result = init("scored.jsonl", *FLAGS, "--train", "rl")
    assert result.exit_code == 0, result.output
    assert "reward 1" in result.output and "report rl_groups" in result.output
