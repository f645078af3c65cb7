"""Fill-in-the-middle sentinels were tokenized as text, or suffix and prefix were swapped.

Year: 2023 – 2026
Hit: Megatron-Bridge PR#5228, transformers#26575
Cost: A model that cannot fill anything in.
Stopped by: `tokenization_identity` puts each cut document together again
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prep_assets_tests.museum.gallery import Row, documents, tokenizer

NAMES = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
TEXTS = [f"def f{number}(x):\n    return x + {number}\n" for number in range(8)]


def test_parts_in_their_order(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path / "tokenizer", special=NAMES)
    right = documents(tmp_path / "stores", TEXTS, tokenizer=folder, preprocessing={"fim": {"rate": 1.0, "spm_rate": 0.0}})
    assert right.failing() == []
    prefix, suffix, middle = (right.token(name) for name in NAMES)
    for row in right.rows("docs_train"):
        assert [int(each) for each in row.ids if each in (prefix, suffix, middle)] == [prefix, suffix, middle]

    def swapped(rows: list[Row]) -> list[Row]:
        changed = []
        for row in rows:
            at = {name: int(np.flatnonzero(row.ids == name)[0]) for name in (prefix, suffix, middle)}
            before, after = row.ids[1 : at[suffix]], row.ids[at[suffix] + 1 : at[middle]]
            ids = np.concatenate([[prefix], after, [suffix], before, row.ids[at[middle] :]])
            changed.append(Row(ids, row.mask))
        return changed

    assert "tokenization_identity" in right.with_rows(swapped, "docs_train").failing()
