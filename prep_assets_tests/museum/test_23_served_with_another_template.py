"""The Jinja template that was shipped differed from the format of the training data: two sections were swapped.

Year: 2026
Hit: vllm-mlx#568
Cost: 25 points on a benchmark of tool calls.
Stopped by: `prep-assets certify --against FILE` compares two templates for one model on every kind of chat, and fails where they part
"""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.text.load_template import named_templates
from prep_assets_tests.museum.gallery import tokenizer


def test_the_command_fails_where_they_part(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path / "tokenizer")
    source = named_templates()["chatml"]
    (tmp_path / "same.jinja").write_text(source, "utf-8")
    (tmp_path / "other.jinja").write_text(source.replace("<|im_end|>", "<|im_end|> "), "utf-8")
    run = CliRunner()
    arguments = ["certify", "chatml", "--tokenizer", str(folder), "--against"]
    assert run.invoke(app, [*arguments, str(tmp_path / "same.jinja")]).exit_code == 0
    found = run.invoke(app, [*arguments, str(tmp_path / "other.jinja")])
    assert found.exit_code != 0 and "plain" in found.output
