"""The messages that the page on troubleshooting explains are messages of the code."""

from __future__ import annotations

import re

from prep_assets_tests.conftest import ROOT
from prep_assets_tests.docs.pages import DOCS, read


def test_every_message_is_raised_somewhere() -> None:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "prep_assets").rglob("*.py"))
    named = [
        text
        for title in re.findall(r"^### (.*)$", read(DOCS / "troubleshooting.md"), re.MULTILINE)
        for text in re.findall(r'"([^"]+)"', title)
    ]
    assert len(named) > 12
    assert [text for text in named if text not in source] == []
