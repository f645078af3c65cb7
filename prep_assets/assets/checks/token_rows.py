"""Row integrity of token streams, whatever the family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from prep_assets.assets.checks.every_store import family_of, open_streams, together
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.images import stored_image_id
from prep_assets.config.models import Family
from prep_assets.proofs.images import check_images
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import TokenStore


def token_rows(workspace: Workspace, published: Published) -> Verdict:
    family = family_of(workspace, published)
    size = workspace.vocabulary(family).size
    stores = open_streams(published).values()
    return together(chain((check_records(store, vocabulary_size=size) for store in stores), image_verdicts(workspace, family, stores)))


def image_verdicts(workspace: Workspace, family: Family, stores: Iterable[TokenStore | PackedStore]) -> Iterator[Verdict]:
    token = stored_image_id(workspace, family)
    yield from () if token is None else (check_images(store, token) for store in stores)
