"""Selftest of JSONL stores: corruptions of pairs, prompts and golds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import islice

from prep_assets.assets import preferences as preference
from prep_assets.assets.checks.source_match import matched_lines
from prep_assets.assets.selftest.trials import ROWS, Trial, chosen, clean, tried
from prep_assets.assets.workspace import Workspace
from prep_assets.proofs.gold import check_golds
from prep_assets.proofs.line_mutations import PAIR_MUTATIONS, PROMPT_MUTATIONS
from prep_assets.proofs.lines_match import Line, check_lines
from prep_assets.proofs.pairs import check_pairs
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import Published


def line_trials(workspace: Workspace, published: Published) -> list[Trial]:
    """Corruptions of the lines of a store."""
    pairs = published.manifest.asset == preference.PAIRS
    lines = list(islice(matched_lines(workspace, published), ROWS))
    if not lines:
        return []
    golds = [_gold(line) for line in lines]
    checks: dict[str, Callable[[Sequence[Line]], Verdict]] = {
        "source_match": lambda found: check_lines(found, stored=len(found)),
        "pair_sanity": lambda found: check_pairs(
            [line.stored for line in found if "label" not in line.stored], [], [line.stored for line in found if "label" in line.stored]
        ),
        "gold_answers": lambda found: check_golds(
            (line.id, "", line.stored.get("gold"), gold) for line, gold in zip(found, golds, strict=True) if "verifier" not in line.stored
        ),
    }
    used = [checks["source_match"], checks["pair_sanity" if pairs else "gold_answers"]]
    trials = [clean("every check", [check(lines) for check in used])]
    for mutation in PAIR_MUTATIONS if pairs else PROMPT_MUTATIONS:
        corrupted = [other for at in chosen(lines) if (other := mutation.change(lines, at)) is not None]
        trials.append(tried(mutation.name, mutation.caught_by, [checks[mutation.caught_by](other) for other in corrupted]))
    return trials


def _gold(line: Line) -> Fraction | None:
    """The gold that the row of a line gives."""
    gold = (line.made or {}).get("gold")
    return Fraction(repr(gold)) if isinstance(gold, float) else None
