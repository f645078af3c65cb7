"""Links of the pages to files beside `docs`, such as `../README.md`, lead to the repository that PREP_ASSETS_REPOSITORY names, or nowhere."""

from __future__ import annotations

import os
import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)(?!\.)([^)#\s]+)((?:#[^)\s]*)?)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by MkDocs with each page."""
    repository = os.environ.get("PREP_ASSETS_REPOSITORY", "").rstrip("/")
    depth = page.file.src_uri.count("/")

    def led(found: re.Match[str]) -> str:
        text, ups, path, anchor = found.groups()
        if ups.count("../") <= depth:
            return found[0]
        return f"[{text}]({repository}/{path}{anchor})" if repository else text

    return _OUTSIDE.sub(led, markdown)
