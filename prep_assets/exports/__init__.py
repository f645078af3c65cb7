"""Stores in the formats that trainers read: one file a format, each registered by name.

    export("stores/sft_packed/current", "packed_parquet", "out/parquet")

See `registry.export`.
"""

from prep_assets.exports.registry import Export, export, exports

__all__ = ["Export", "export", "exports"]
