"""Checks of the verdicts of quality steps: nothing that blocks was found, and the steps say the same once more."""

from __future__ import annotations

from prep_assets.pipeline.asset import Check, Store
from prep_assets.pipeline.quality import judged_domain, source_to_judge, steps_of
from prep_assets.pipeline.verdicts import read_verdicts
from prep_assets.proofs.verdict import Verdict, Worst


def _not_blocked(store: Store) -> Verdict:
    counts = store.manifest.counts
    numbers = {"examples": counts["examples"], "dropped": counts["dropped"], **counts["found"]}
    if blocking := counts.get("blocking"):
        reason, first = next(iter(blocking.items()))
        detail = f"{', '.join(blocking)} must not be found, and was; first {first}"
        return Verdict(
            False, f"{detail}. Mend the source, or set the step's action to drop", numbers, Worst(first.partition(": ")[0], reason)
        )
    return Verdict(True, f"{counts['examples']:,} examples, {counts['dropped']:,} of them dropped, none that blocks", numbers)


def _again(store: Store) -> Verdict:
    """Judge the domain once more, and compare row by row."""
    family = store.asset.family
    steps = steps_of(store.family, store.partition)
    table, again = read_verdicts(store.published), judged_domain(source_to_judge(store.workspace, family, store.partition), steps).table()
    numbers = {"rows_compared": table.num_rows}
    if table.schema != again.schema or table.num_rows != again.num_rows:
        detail = (
            f"it has {table.num_rows:,} rows of {table.column_names}; judged again there are {again.num_rows:,} of {again.column_names}"
        )
        return Verdict(False, detail, numbers, Worst("verdicts", detail))
    for name in table.column_names:
        if not table[name].equals(again[name]):
            stored, expected = table[name].to_pylist(), again[name].to_pylist()
            at = next(at for at, pair in enumerate(zip(stored, expected, strict=True)) if pair[0] != pair[1])
            where = f"row {table['row'][at]} of file {table['file'][at]}"
            return Verdict(
                False, detail := f"{where}: {name} is {stored[at]!r}, judged again {expected[at]!r}", numbers, Worst(where, detail)
            )
    return Verdict(True, f"{table.num_rows:,} examples, read and judged again, have the same verdicts", numbers)


NOT_BLOCKED = Check("not_blocked", "No step whose action is block found anything.", _not_blocked)
VERDICTS_AGAIN = Check("verdicts_again", "The sources, read and judged again, give the same verdict for every example.", _again)
