"""Checks of what is held out: passages read again are the same, no example holds one, and a second search says the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from prep_assets.checks.relations import same_rows
from prep_assets.config.models import FAMILIES
from prep_assets.data.quarantine import renumbered
from prep_assets.extensions.leaks.overlap import RULES, Leak, Passages, recall
from prep_assets.extensions.leaks.proofs import ANSWER, LEAKS, OTHER, PASSAGES, PROBED, QUESTION, QUOTED, QUOTED_WORDS, RECALL, TRAINING
from prep_assets.extensions.leaks.search import Texts, read_passages
from prep_assets.extensions.quality.examined import examples_of, source_to_judge
from prep_assets.extensions.quality.steps import corrupted_examples
from prep_assets.pipeline.asset import Check, Store
from prep_assets.pipeline.verdicts import QUALITY, read_table, read_verdicts, uncovered
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import ASSISTANT, USER, document


def known_leaks_fault() -> str:
    """Return what a rule finds wrongly of an example whose leaks are known; ``""`` where nothing is wrong."""
    held, training = [(USER, QUESTION), (ASSISTANT, ANSWER)], corrupted_examples([*map(document, TRAINING)])
    if (units := RULES["gpt3"].units(QUOTED)) != QUOTED_WORDS:
        return f"of a quoted text {units[:20]} … are compared, and must be {QUOTED_WORDS[:20]} …"
    if (sizes := {words: RULES["gpt3"].size(np.full(20, words)) for words in PASSAGES}) != PASSAGES:
        return f"rule gpt3 has passages of {sizes} words (words of each held-out text: words of a passage), and must have {PASSAGES}"
    for name, known in LEAKS.items():
        leaks = Passages.of(RULES[name], [[RULES[name].text(held), OTHER]]).leaks(training)
        found = {at: leak.shared for at, several in sorted(leaks.items()) for leak in several if leak.text == 0}
        if found != known:
            return f"rule {name} finds a held-out example in {found} (text: shared units), and must find it in {known}"
    return ""


def known_recall_fault() -> str:
    """Return what is counted wrongly of probes of known texts; ``""`` where nothing is wrong."""
    probed = recall({"gpt3": Passages.of(RULES["gpt3"], [[text] for text in PROBED[:-1]])}, dict(enumerate(PROBED)))
    return "" if probed == RECALL else f"of probes with known texts {probed} are found, and must be {RECALL}"


def _passages_again(store: Store) -> Verdict:
    """Search for an example whose leaks are known; read what is held out once more, and compare all passages."""
    if fault := known_leaks_fault() or known_recall_fault():
        return Verdict(False, fault, {}, Worst("rules", fault))
    verdicts = [same_rows(read_table(store.published, name), again) for name, again in Texts(store.workspace).tables().items()]
    return next((verdict for verdict in verdicts if not verdict.passed), verdicts[0])


def _no_leaks(store: Store) -> Verdict:
    verdict = _searched(store)
    short = uncovered(store.manifest.counts)
    return replace(verdict, summary=f"{verdict.summary}. {short}") if short else verdict


def _searched(store: Store) -> Verdict:
    counts, policy = store.manifest.counts, store.recipe["policy"]
    numbers = {"examples": counts["examples"], "leaks": counts["leaks"], **counts["by_set"]}
    if not counts["leaks"]:
        return Verdict(True, f"{counts['examples']:,} examples, none of which holds a held-out text", numbers)
    record, _, detail = counts["first"].partition(" ")  # the record as in files, counted from 0
    record = renumbered(record, 1)
    held = ", ".join(f"{name} ({count:,})" for name, count in counts["by_set"].items())
    fault = f"{counts['leaks']:,} of {counts['examples']:,} examples hold texts of {held}; first {record} {renumbered(detail, 1)}"
    if policy == "block":
        remedy = (
            f"See them with `prep-assets leaks {store.asset.family} --partition {store.partition}`. Mend the source, or set policy: drop"
        )
        return Verdict(False, f"{fault}. {remedy}", numbers, Worst(record, fault))
    kept = "refused" if policy == "drop" else "kept: policy is report"
    return Verdict(True, f"{fault}. They are {kept}", numbers)


def _leaks_again(store: Store) -> Verdict:
    """Search for an example whose leaks are known, then the domain once more, and compare row by row."""
    if fault := known_leaks_fault():
        return Verdict(False, fault, {}, Worst("rules", fault))
    import pyarrow as pa

    table = read_verdicts(store.published)
    return same_rows(table, pa.Table.from_pylist(list(_found_again(store)), table.schema))


def _found_again(store: Store) -> Iterator[dict[str, Any]]:
    """Yield a row for each example and data set that leaks into it. The first rule that finds one counts its texts; the one that shares most is named."""
    family, name = store.asset.family, store.partition
    held, source = read_passages(store.workspace.built("eval_passages")), source_to_judge(store.workspace, family, name)
    foreign = np.array([(each.family, each.name) != (family, name) for each in held.sets], bool)
    refuses = (QUALITY,) if store.workspace.family(FAMILIES[family]).quality.steps else ()
    for examples, items, _ in examples_of(replace(source, refuses=refuses).reading(), "search"):
        found: dict[tuple[int, str, str], list[tuple[str, Leak]]] = {}
        for rule, passages in held.passages.items():
            for at, leaks in passages.leaks(examples, foreign).items():
                for leak in leaks:
                    found.setdefault((at, held.sets[leak.text].family, held.sets[leak.text].name), []).append((rule, leak))
        for (at, of, domain), leaks_by_rule in sorted(found.items(), key=lambda each: each[0][0]):
            rule, most = leaks_by_rule[0]
            units, record = int(held.passages[rule].units[most.text]), held.ids[most.text]
            where = f"{domain} (eval)" if of == "eval" else f"held-out {of}[{domain}]"
            yield {
                "file": items[at].record.file,
                "row": items[at].record.row,
                "rule": rule,
                "family": of,
                "domain": domain,
                "record": record,
                "shared": most.shared,
                "units": units,
                "texts": sum(name == rule for name, _ in leaks_by_rule),
                "dropped": "held_out" if store.recipe["policy"] == "drop" else None,
                "detail": f"shares {most.shared:,} of {units:,} {'paragraphs' if rule == 'dolma' else 'words'} with {record} of {where} ({rule})",
            }


PASSAGES_AGAIN = Check("passages_again", "What is held out, read again, has the same passages.", _passages_again)
NO_LEAKS = Check("no_leaks", "No example holds a held-out text, or eval.yaml says that it is refused or kept.", _no_leaks)
LEAKS_AGAIN = Check("leaks_again", "The sources, read and searched again, hold the same held-out texts.", _leaks_again)
