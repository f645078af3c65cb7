"""How many documents of a store are for the fast engine, and how many for the reference.

A document is for the reference where a text of it is, by its characters alone (`RoutedEngine`): so the counts are the same whatever the size of blocks and
the number of workers were, and of a store that was there already. They depend on the versions of both engines, which differ from machine to machine, so that no
manifest holds them; they are counted when somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from prep_assets.assets.stage import Store
from prep_assets.stores.tokens import TokenStore
from prep_assets.tokenization.agreement import ComparedEngine
from prep_assets.tokenization.routed import RoutedEngine
from prep_assets.tokenization.vocabulary import Vocabulary


def by_engine(store: Store, most: int) -> dict[str, int]:
    """Documents by the name of the engine; nothing of stores that have no token streams, or more than so many tokens."""
    streams = list(store.streams().values())
    documents = sum(map(len, streams))
    if not documents or sum(stream.tokens for stream in streams) > most:
        return {}
    engines = store.workspace.engines(store.family)
    # text after a control token has an engine of its own where a tokenizer begins only documents with a space
    each = [one.engine if isinstance(one, ComparedEngine) else one for one in dict.fromkeys((engines.first, engines.rest))]
    routed = [one for one in each if isinstance(one, RoutedEngine)]
    if len(routed) < len(each):
        return {engines.reference.name: documents}
    blocks = (texts for stream in streams for texts in _texts(stream, store.vocabulary))
    odd = sum(int(np.any([one.for_reference(texts) for one in routed], axis=0).sum()) for texts in blocks)
    return {engines.first.name: documents - odd, engines.reference.name: odd}


def _texts(stream: TokenStore, vocabulary: Vocabulary) -> Iterator[list[str]]:
    """The texts of a stream's documents, a line feed for each control token."""
    import pyarrow as pa

    control = set(vocabulary.control.values())
    table = pa.array([b"\n" if number in control else own for number, own in enumerate(vocabulary.token_bytes or ())], pa.large_binary())
    for records, tokens in stream.blocks():
        ids = np.asarray(stream.arrays["tokens"][tokens])
        found = table.take(pa.array(ids.astype(np.int64)))
        bounds, data = np.frombuffer(found.buffers()[1], np.int64), bytes(found.buffers()[2] or b"")
        ends = bounds[stream.ends[records] - tokens.start].tolist()
        yield [data[start:end].decode("utf-8", "ignore") for start, end in pairwise([0, *ends])]
