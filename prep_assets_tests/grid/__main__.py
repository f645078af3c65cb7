"""``python -m prep_assets_tests.grid [ROWS [FEWER]]``: every chat data set × every tokenizer × every template, ROWS rows with shipped templates and FEWER with
those that TRL keeps; what was found is written to docs/real-data.md.

Needs PREP_ASSETS_TEST_DATA. Details of refusals go to ``grid-refusals.tsv`` in the folder TMPDIR, to be read.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from prep_assets_tests.grid.cells import TOKENIZERS, Cell, cells, chats, published
from prep_assets_tests.masks.bound import CONTROL

PAGE = Path(__file__).resolve().parents[2] / "docs" / "real-data.md"
SECTION = re.compile(r"(<!-- measured: grid -->\n).*?(<!-- end of measured -->)", re.DOTALL)
SHOWN = 20


def main(shipped: int, others: int) -> int:
    real_data = Path(os.environ["PREP_ASSETS_TEST_DATA"])
    few, many, rows, faults = chats(real_data, others), chats(real_data, shipped), [], 0
    examples: dict[str, list[str]] = defaultdict(list)
    begin = time.monotonic()
    for template, data, ours in [*((name, few, False) for name in published(real_data)), *((name, many, True) for name in CONTROL)]:
        whole, per_tokenizer = Cell(), []
        for tokenizer in TOKENIZERS:
            with tempfile.TemporaryDirectory() as folder:
                found = dict(cells(real_data, template, tokenizer, data, Path(folder), shipped=ours))
            per_tokenizer.append(sum((cell.refused for cell in found.values()), Counter[str]()))
            for name, cell in found.items():
                whole.read, whole.kept, whole.tagged = whole.read + cell.read, whole.kept + cell.kept, whole.tagged + cell.tagged
                whole.faults += [f"{template} {tokenizer} {name}: {fault}" for fault in cell.faults]
                for reason, of, row, detail in cell.examples if tokenizer == TOKENIZERS[0] else ():
                    examples[reason].append(f"{reason}\t{template}\t{of}:{row}\t{detail[:400]!r}")
        whole.refused = sum(per_tokenizer, Counter[str]())
        reasons = ", ".join(f"`{reason}` {count:,}" for reason, count in sorted(whole.refused.items()))
        rows.append(f"| {template}{' (shipped)' * ours} | {whole.read:,} | {whole.kept:,} | {whole.tagged:,} | {reasons} |\n")
        faults += len(whole.faults)
        print(f"{time.monotonic() - begin:6.0f} s {rows[-1].strip()}", *whole.faults, sep="\n  ", flush=True)
    listed = [line for each in examples.values() for line in each[:: max(1, len(each) // SHOWN)][:SHOWN]]
    (Path(tempfile.gettempdir()) / "grid-refusals.tsv").write_text("\n".join(listed) + "\n", "utf-8")
    table = "| template | read | kept | of them by tags too | refused |\n|---|---|---|---|---|\n" + "".join(rows)
    page = PAGE.read_text("utf-8")
    PAGE.write_text(SECTION.sub(lambda match: f"{match[1]}{table}{match[2]}", page), "utf-8")
    print(f"{faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, [*sys.argv[1:], "200", "8"][:2])))
