"""The images of a source row with what must stand for each, counted a second time."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from prep_assets.assets.reading.pinned import domain_of
from prep_assets.assets.stage import Store
from prep_assets.assets.writing.images import REMEMBERED, REMOTE
from prep_assets.config.models import image_token
from prep_assets.errors import CheckFailed, Refused
from prep_assets.proofs.image_tokens import Size, counted_again
from prep_assets.records.resolution import resolution_of
from prep_assets.samples import Sample


def images_again(store: Store) -> Callable[[Sample], Sample]:
    """What gives the images of a sample of the store's domain their placeholders."""
    folder = store.workspace.image_folder(domain_of(store.family, store.partition))
    rule, token = store.workspace.image_rule(store.family), image_token(store.family) or ""

    @lru_cache(REMEMBERED)
    def size_of(path: str) -> Size | None:
        if folder is None or REMOTE.match(path):
            return None
        try:
            return resolution_of(folder / path)
        except Refused as refusal:
            raise CheckFailed(str(refusal)) from refusal

    return lambda sample: counted_again(sample, rule, token, size_of)
