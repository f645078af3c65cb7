"""Write one packed table in every format that takes packed tables.

python examples/export_for_trainers.py data/stores/sft_packed/current out/all
"""

from __future__ import annotations

import sys
from pathlib import Path

from prep_assets.extensions.exports.registry import export, exports
from prep_assets.stores.table import PACKED


def main(store: str, out: str) -> None:
    """One folder for each format."""
    for name, each in exports().items():
        if PACKED in each.takes and not each.tokenizer:  # those that need one are written with the family's: prep-assets export
            options = {"eos_id": 0} if "eos_id" in each.options else {}  # the end-of-text token of your tokenizer
            folder = export(store, name, Path(out) / name, **options)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            print(f"{name:16} {size:12,} bytes   {each.summary}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
