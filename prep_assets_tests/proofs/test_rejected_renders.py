"""Rejections by a chat template: chats that cannot be rendered, as no token stands for their files."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from prep_assets.proofs.rejected_renders import ruling
from prep_assets.samples import Region, Sample, Turn


@pytest.mark.parametrize("kind", ["image", "audio", "video"])
def test_a_file_without_a_token_explains_one_reason(kind: str) -> None:
    template = cast(Any, SimpleNamespace(marks={}))
    sample = Sample((Turn("user", (Region("text", "What is it?"), Region(kind, "1.bin"))), Turn("assistant", (Region("text", "A cat."),))))
    assert ruling(f"no_{kind}_token", sample, template) == ""
    assert ruling("no_stop_token", sample, template) is None
