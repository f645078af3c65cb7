"""Where `prep-assets view` serves the page of a store."""

from __future__ import annotations

import os
from urllib.parse import quote

HOST, PORT = "127.0.0.1", 8899
STORES, CANDIDATES, TRACES = "/stores/", "/candidates/", "/traces/"
"""Pages of stores that are current, of those that wait because a check of them fails, and of traces."""
VIEW = "PREP_ASSETS_VIEW_URL"
"""Environment variable: the address of the server, where it is another than this machine's."""


def page_address(asset: str, partition: str = "", *, candidate: bool = False) -> str:
    """The address of a store's page."""
    base = os.environ.get(VIEW) or f"http://{HOST}:{PORT}"
    return base.rstrip("/") + (CANDIDATES if candidate else STORES) + quote("/".join(filter(None, (asset, partition))))
