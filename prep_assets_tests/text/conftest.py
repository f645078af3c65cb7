"""The shipped tokenizer, whose special tokens the templates are rendered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.text.vocabulary import Vocabulary, load_vocabulary

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return load_vocabulary("tokenizer", base=CONFIGS)
