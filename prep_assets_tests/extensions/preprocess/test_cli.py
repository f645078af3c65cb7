from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets_tests.extensions.preprocess.conftest import chat, ids, write_rows
from prep_assets_tests.extensions.preprocess.reference import read_bin

RECIPE = Path(__file__).resolve().parents[3] / "configs" / "recipes" / "astrai" / "chat" / "pipeline.json"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "a.jsonl", [chat(("user", "a"), ("assistant", "b"), source="wiki"), {"messages": []}])
    write_rows(tmp_path / "b.jsonl", [chat(("user", "a"), ("assistant", "c d"), source="code")])
    return tmp_path


def call(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_the_documented_command(here: Path, tokenizer: Path) -> None:
    code, said = call("preprocess", "a.jsonl", "b.jsonl", "-o", "out", "-c", RECIPE, "--tokenizer", tokenizer)
    assert code == 0, said
    for line in ("records read", "schema/empty", "= kept", "trained tokens", "quarantine.jsonl", "wiki", "code"):
        assert line in said
    assert read_bin(here / "out" / "code" / "shard_0000")["sequence"].tolist()[-3:] == ids("c d <|im_end|>")


def test_astrais_own_option_names_and_folder_of_the_tokenizer(here: Path, tokenizer: Path) -> None:
    (here / "params").symlink_to(tokenizer)
    code, said = call("preprocess", "a.jsonl", "--output_dir", "out", "--config", RECIPE)
    assert code == 0, said
    code, said = call("preprocess", "a.jsonl", "--output_dir", "out2", "--config", RECIPE, "--tokenizer_path", tokenizer)
    assert code == 0, said


def test_layout_and_position_ids(here: Path, tokenizer: Path) -> None:
    code, said = call(
        *("preprocess", "b.jsonl", "-o", "out", "-c", RECIPE, "--tokenizer", tokenizer, "--layout", "flat", "--position-ids", "doc_reset")
    )
    assert code == 0, said
    found = read_bin(here / "out" / "code")
    assert found["position_ids"].tolist() == list(range(len(found["sequence"])))


def test_without_a_tokenizer_the_configured_one_is_used_and_named(here: Path) -> None:
    code, said = call("preprocess", "a.jsonl", "-o", "out", "-c", RECIPE, "--masking", "spans")
    assert code == 0, said
    assert "tokenizer:" in said and "configs" in said


def test_an_error_is_one_message_and_exit_1(here: Path, tokenizer: Path) -> None:
    (here / "p.json").write_text('{"input": {"type": "chatt"}}')
    code, said = call("preprocess", "a.jsonl", "-o", "out", "-c", "p.json", "--tokenizer", tokenizer)
    assert code == 1
    assert "did you mean 'chat'?" in said and "Traceback" not in said
    assert not (here / "out").exists()


def test_overwrite(here: Path, tokenizer: Path) -> None:
    arguments = ("preprocess", "a.jsonl", "-o", "out", "-c", RECIPE, "--tokenizer", tokenizer)
    assert [call(*arguments)[0], call(*arguments)[0], call(*arguments, "--overwrite")[0]] == [0, 1, 0]


def test_migrate_prints_yaml(here: Path) -> None:
    code, said = call("migrate", RECIPE, "--file", "x.jsonl", "--domain", "talk", "--tokenizer", "tok")
    assert code == 0
    assert said.startswith("# configs/sft.yaml") and "talk:" in said and "- x.jsonl" in said
