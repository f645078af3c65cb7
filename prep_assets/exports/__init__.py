"""Stores in the formats that trainers read, each a function registered by name.

    export("stores/sft_packed/current", "packed_parquet", "out/parquet")

See `registry.export`.
"""

from prep_assets.exports.registry import Export, export, exports

__all__ = ["Export", "export", "exports"]
