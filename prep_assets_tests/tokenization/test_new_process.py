"""Work in a process of its own: it gives a line, or says why not, and this process keeps nothing of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from prep_assets.errors import ConfigError
from prep_assets.text import agreement as agreements
from prep_assets.text.agreement import agreement, compare
from prep_assets.text.code_tokenizer import in_a_new_process
from prep_assets.text.vocabulary import from_file
from prep_assets_tests.graph.workspaces import CONFIGS

TOKENIZER = CONFIGS / "tokenizer"


@pytest.fixture(autouse=True)
def compared_here() -> None:
    """In a process for each, as everywhere but in tests."""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    code = (
        "import os, sys\n"
        "def joined(*texts):\n    print('noise')\n    return os.environ.get('SEED', '') + '+'.join(texts) + sys.stdin.read()\n"
        "def failing():\n    raise ValueError('what went wrong')\n"
        "def ended():\n    os._exit(7)\n"
    )
    (tmp_path / "of_this_test.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "of_this_test"


def test_it_gives_the_last_line(module: str) -> None:
    assert in_a_new_process(module, "joined", "a b", "ü'\"", SEED="s") == "sa b+ü'\""


@pytest.mark.parametrize(("function", "says"), [("failing", "ValueError: what went wrong"), ("ended", "it ended with 7")])
def test_what_fails_there_says_why(module: str, function: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        in_a_new_process(module, function)


def test_a_comparison_that_fails_names_the_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: str) -> str:
        raise ConfigError("ImportError: no such thing")

    monkeypatch.setattr(agreements, "in_a_new_process", failing)
    with pytest.raises(
        ConfigError, match=r"tokenizer 'own' cannot be compared with what transformers makes of .*: ImportError: no such thing"
    ):
        agreement(from_file("own", TOKENIZER), TOKENIZER)


def test_a_comparison_apart_finds_the_same_and_imports_nothing_here() -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom prep_assets.text.agreement import agreement\n"
        "from prep_assets.text.vocabulary import from_file\nfolder = Path(sys.argv[1])\n"
        "print(repr(agreement(from_file('own', folder), folder)), {'torch', 'transformers'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", script, str(TOKENIZER)], check=True, capture_output=True, text=True).stdout.strip()
    assert said == f"{compare(from_file('own', TOKENIZER), TOKENIZER)!r} set()"
