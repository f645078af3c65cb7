"""Row integrity of token streams, whatever the family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from prep_assets.assets.checks.every_store import together
from prep_assets.assets.stage import Check, Store
from prep_assets.assets.writing.images import stored_image_id
from prep_assets.proofs.images import check_images
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore


def token_rows(store: Store) -> Verdict:
    """The rows of every stream, and the images in them."""
    streams, size = store.streams().values(), store.vocabulary.size
    return together(chain((check_records(each, vocabulary_size=size) for each in streams), image_verdicts(store, streams)))


PLAIN_ROWS = Check("row_integrity", "Ids are inside the vocabulary.", token_rows)


def image_verdicts(store: Store, streams: Iterable[TokenStore | PackedStore]) -> Iterator[Verdict]:
    """Whether images stand where the image token does; nothing where the family refuses images."""
    token = stored_image_id(store.workspace, store.family)
    rule = store.workspace.image_rule(store.family)
    yield from () if token is None else (check_images(each, token, rule) for each in streams)
