"""Checks of what is held out: passages read again are the same, no example holds one, and a second search says the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np

from prep_assets.checks.relations import same_rows
from prep_assets.config.models import FAMILIES, Eval
from prep_assets.data.quarantine import renumbered
from prep_assets.extensions.leaks.overlap import CLASSES, PROBES, RULES, Leak, Passages, recall
from prep_assets.extensions.leaks.proofs import ANSWER, LEAKS, OTHER, PASSAGES, PROBED, QUESTION, QUOTED, QUOTED_WORDS, RECALL, TRAINING
from prep_assets.extensions.leaks.search import TEXTS, HeldOut, Texts
from prep_assets.extensions.quality.examined import Unwritten, examples_of, source_to_judge
from prep_assets.extensions.quality.steps import corrupted_examples
from prep_assets.pipeline.asset import Check, Store
from prep_assets.pipeline.verdicts import QUALITY, read_table, read_verdicts, uncovered
from prep_assets.proofs.verdict import Verdict, Worst, wrong_claim
from prep_assets.samples import ASSISTANT, USER, document
from prep_assets.stores.version_folders import Published

_MOST_PROBES = 200
"""Texts of a data set that are looked for in disguise."""


def known_leaks_fault() -> str:
    """Return what a rule finds wrongly of an example whose leaks are known; ``""`` where nothing is wrong."""
    held, training = [(USER, QUESTION), (ASSISTANT, ANSWER)], corrupted_examples([*map(document, TRAINING)])
    if (units := RULES["gpt3"].units(QUOTED)) != QUOTED_WORDS:
        return f"of a quoted text {units[:20]} … are compared, and must be {QUOTED_WORDS[:20]} …"
    if (sizes := {words: RULES["gpt3"].size(np.full(20, words)) for words in PASSAGES}) != PASSAGES:
        return f"rule gpt3 has passages of {sizes} words (words of each held-out text: words of a passage), and must have {PASSAGES}"
    for name, known in LEAKS.items():
        text = RULES[name].text(held)
        leaks = Passages.of(RULES[name], [[text, OTHER, text]]).leaks(training)
        for first_or_last in (0, 2):
            found = {at: leak.shared for at, several in sorted(leaks.items()) for leak in several if leak.text == first_or_last}
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
    read, counts = Texts(store.workspace, Unwritten()), store.manifest.counts
    must = _counts_of_texts(read_table(store.published, TEXTS), store.recipe["rules"], read.rejected)
    share = {"uncovered": max((count / must["by_set"][label] for label, count in must["uncovered"].items()), default=0.0)}
    probes = {
        label: sum(probed[name][1] for name in CLASSES if name in probed) // len(PROBES) for label, probed in counts["recall"].items()
    }
    if fault := _wrong_count(must, {**counts, "probes": probes}) or wrong_claim(share, store.manifest.metrics):
        return Verdict(False, fault, {}, Worst("counts", fault))
    verdicts = [same_rows(read_table(store.published, name), again) for name, again in read.tables().items()]
    return next((verdict for verdict in verdicts if not verdict.passed), verdicts[0])


def _counts_of_texts(table: Any, rules: Sequence[str], rejected: Counter[str]) -> dict[str, Any]:
    """What a manifest must count of a table of held-out texts, and of rows that are no example."""
    labels = _labels(table)
    short = {rule: np.less(table[f"{rule}.units"], table[f"{rule}.size"]) for rule in rules}
    by_set, none_finds = Counter(labels), np.logical_and.reduce([*short.values()])
    return {
        "texts": len(labels),
        "by_set": by_set + rejected,
        "too_short": {rule: int(np.count_nonzero(each)) for rule, each in short.items()},
        "uncovered": Counter(compress(labels, none_finds)) + rejected,
        "probes": {label: min(count, _MOST_PROBES) for label, count in by_set.items()},
    }


def _labels(table: Any) -> list[str]:
    return [HeldOut(*of).label for of in _columns(table, "family", "domain")]


def _columns(table: Any, *names: str) -> list[tuple[Any, ...]]:
    """Columns as a tuple for each row."""
    return [*zip(*(table[name].to_pylist() for name in names), strict=True)]


def _wrong_count(must: Mapping[str, Any], counts: Mapping[str, Any]) -> str:
    """Return which count of a manifest, a number or several by label, is not what it must be; ``""`` if all are."""
    wrong = (name for name, value in must.items() if counts.get(name) != value)
    return next((f"{name} is {must[name]}, the manifest says {counts.get(name)}" for name in wrong), "")


def _no_leaks(store: Store) -> Verdict:
    counts, policy = store.manifest.counts, store.recipe["policy"]
    more = f". {short}" if (short := uncovered(counts)) else ""
    numbers = {"examples": counts["examples"], "leaks": counts["leaks"], **counts["by_set"]}
    if not counts["leaks"]:
        return Verdict(True, f"{counts['examples']:,} examples, none of which holds a held-out text{more}", numbers)
    record, _, detail = counts["first"].partition(" ")  # the record as in files, counted from 0
    record = renumbered(record, 1)
    held = ", ".join(f"{name} ({count:,})" for name, count in counts["by_set"].items())
    fault = f"{counts['leaks']:,} of {counts['examples']:,} examples hold texts of {held}; first {record} {renumbered(detail, 1)}"
    if policy == "block":
        remedy = (
            f"See them with `prep-assets leaks {store.asset.family} --partition {store.partition}`. Mend the source, or set policy: drop"
        )
        return Verdict(False, f"{fault}. {remedy}{more}", numbers, Worst(record, fault))
    kept = "refused" if policy == "drop" else "kept: policy is report"
    return Verdict(True, f"{fault}. They are {kept}{more}", numbers)


def _leaks_again(store: Store) -> Verdict:
    """Search for an example whose leaks are known, then the domain once more, and compare row by row."""
    if fault := known_leaks_fault():
        return Verdict(False, fault, {}, Worst("rules", fault))
    import pyarrow as pa

    table, (again, read) = read_verdicts(store.published), _found_again(store)
    held_out, own = store.workspace.built("eval_passages").manifest.counts, HeldOut(store.asset.family, store.partition).label
    uncovered = {label: [count, held_out["by_set"][label]] for label, count in held_out["uncovered"].items() if label != own}
    must: dict[str, Any] = {
        "examples": read,
        "leaks": len({*_columns(table, "file", "row")}),
        "by_set": Counter(_labels(table)),
        "uncovered": uncovered,
    }
    if table.num_rows and not store.manifest.counts.get("first", "").endswith(f" {table['detail'][0]}"):
        must["first"] = table["detail"][0].as_py()
    most = max((count / texts for count, texts in uncovered.values()), default=0.0)
    shares = {"leaks": must["leaks"] / max(1, read), "uncovered": most}
    if fault := _wrong_count(must, store.manifest.counts) or wrong_claim(shares, store.manifest.metrics):
        return Verdict(False, fault, {}, Worst("counts", fault))
    return same_rows(table, pa.Table.from_pylist(again, table.schema))


def _found_again(store: Store) -> tuple[list[dict[str, Any]], int]:
    """Return a row for each example and data set that leaks into it, and how many examples were searched. The first rule that finds one counts its texts; the
    one that shares most is named."""
    family, name = store.asset.family, store.partition
    published, source = store.workspace.built("eval_passages"), source_to_judge(store.workspace, family, name)
    texts = read_table(published, TEXTS)
    sets, records = _columns(texts, "family", "domain"), _columns(texts, "file", "row")
    searched: dict[str, Passages] = {name: _passages(published, name, texts) for name in store.workspace.family(Eval).rules}
    foreign, rows, read = np.array([of != (family, name) for of in sets], bool), list[dict[str, Any]](), 0
    refuses = (QUALITY,) if store.workspace.family(FAMILIES[family]).quality.steps else ()
    for examples, items, _ in examples_of(replace(source, refuses=refuses).reading(), "search"):
        read += len(examples)
        found: dict[tuple[int, str, str], list[tuple[str, Leak]]] = {}
        for rule, passages in searched.items():
            for at, leaks in passages.leaks(examples, foreign).items():
                for leak in leaks:
                    found.setdefault((at, *sets[leak.text]), []).append((rule, leak))
        for (at, of, domain), leaks_by_rule in sorted(found.items(), key=lambda each: each[0][0]):
            rule, most = leaks_by_rule[0]
            units, record = int(searched[rule].units[most.text]), "{}:{}".format(*records[most.text])
            where = f"{domain} (eval)" if of == "eval" else f"held-out {of}[{domain}]"
            row = {
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
            rows.append(row)
    return rows, read


def _passages(published: Published, rule: str, texts: Any) -> Passages:
    """The passages of held-out texts by a rule, as `eval_passages` has them."""
    cut = read_table(published, f"{rule}.parquet")
    numbers = (texts[f"{rule}.units"], texts[f"{rule}.size"], cut["hash"], cut["text"], cut["start"])
    units, sizes, hashes, numbers_of_texts, starts = (column.to_numpy() for column in numbers)
    return Passages(RULES[rule], units, sizes, hashes, numbers_of_texts, starts)


PASSAGES_AGAIN = Check("passages_again", "What is held out, read again, has the same passages.", _passages_again)
NO_LEAKS = Check("no_leaks", "No example holds a held-out text, or eval.yaml says that it is refused or kept.", _no_leaks)
LEAKS_AGAIN = Check("leaks_again", "The sources, read and searched again, hold the same held-out texts.", _leaks_again)
