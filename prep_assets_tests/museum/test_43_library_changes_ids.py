"""A new version of the tokenizer library gave other ids to added white space.

Year: 2023
Hit: TransformerLens#404
Cost: The same file, the same text, other tokens.
Stopped by: the library's version is part of the build key
"""

from __future__ import annotations

from pathlib import Path

import tokenizers

from prep_assets_tests.museum.gallery import CHAT, chats


def test_the_version_is_in_the_recipe(tmp_path: Path) -> None:
    import json

    recipe = json.dumps(chats(tmp_path, [CHAT]).published.manifest.recipe)
    assert tokenizers.__version__ in recipe
