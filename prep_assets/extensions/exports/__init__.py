"""Stores in the formats that trainers read, each a function registered by name, and the assets that keep such files.

    export("stores/sft_packed/current", "packed_parquet", "out/parquet")

See `registry.export`.
"""
