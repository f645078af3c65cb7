"""The stores of the exports' tests and the runner of `prep-assets preprocess`, and other projects' loaders."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets_tests.extensions.exports.conftest import chats, pairs, table, text  # noqa: F401
from prep_assets_tests.extensions.preprocess.conftest import run, tokenizer  # noqa: F401
from prep_assets_tests.peers.checkouts import checkout, import_astrai


@pytest.fixture(scope="session")
def astrai(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """``astrai.dataset`` of the checkout that PREP_ASSETS_ASTRAI names."""
    return import_astrai(checkout("PREP_ASSETS_ASTRAI", "AstrAI"), tmp_path_factory.mktemp("astrai"))
