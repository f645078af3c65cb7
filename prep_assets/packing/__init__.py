"""Packing: from lengths of records to a pack plan, which says which tokens of which record go where in which row.

Pure functions on integers. A plan is an index over ragged records; tokens are only touched by `gather_rows`.

    mix(...) ──▶ Mixture.lengths ──▶ pack(...) ──▶ PackPlan ──▶ gather_rows(...), position_ids(...), cu_seqlens(...), …
"""

from prep_assets.packing.balance import by_work, evenness
from prep_assets.packing.borders import (
    PositionMode,
    cu_seqlens,
    first_of_document,
    position_ids,
    segment_ids,
    seq_lengths,
    seq_start_id,
    used_places,
)
from prep_assets.packing.mixing import DomainShare, Mixture, mix
from prep_assets.packing.plan import PackPlan, gather_rows
from prep_assets.packing.strategies import Overlong, Strategy, Tail, pack

__all__ = [
    "DomainShare",
    "Mixture",
    "Overlong",
    "PackPlan",
    "PositionMode",
    "Strategy",
    "Tail",
    "by_work",
    "cu_seqlens",
    "evenness",
    "first_of_document",
    "gather_rows",
    "mix",
    "pack",
    "position_ids",
    "segment_ids",
    "seq_lengths",
    "seq_start_id",
    "used_places",
]
