"""What the tests of configuration share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prep_assets.config.family import Family
from prep_assets.config.loading import load_family
from prep_assets.errors import ConfigError

SMALLEST = "tokenizer: tok\ndomains:\n  a: {files: [a.jsonl], schema: messages}\n"


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Family]:
    """`load(text, family="sft")`: the configuration in this YAML."""

    def read(text: str, family: str = "sft") -> Family:
        (tmp_path / f"{family}.yaml").write_text(text, "utf-8")
        return load_family(family, tmp_path)

    return read


@pytest.fixture
def fault(load: Callable[..., Family], tmp_path: Path) -> Callable[..., str]:
    """`fault(text, family="sft")`: the message with which this YAML is refused; it always names the file."""

    def refuse(text: str, family: str = "sft") -> str:
        with pytest.raises(ConfigError) as caught:
            load(text, family)
        message = str(caught.value)
        assert str(tmp_path / f"{family}.yaml") in message
        return message

    return refuse
