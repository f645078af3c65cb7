"""``python -m mutants``: change the proofs one place at a time, and see whether any test of the suite notices.

MODULE names rooms or modules (``proofs checks/selection``, ``extensions/recall``), all proofs and checks if it is empty; TESTS names tests to try, all of the
suite if it is empty; SEED draws COUNT changes; SECONDS bounds the tests of one. Results are lines of JSON in ``build/mutants/``: what was noticed is not tried
again, the trace is made anew if it is deleted, ``unrun.txt`` lists the statements that no test runs. A change that nothing notices and that `survivors.md`
beside this file does not list makes the run fail. PREP_ASSETS_WRITE_DOCS=1 adds the figures to `measured.md`.
"""

from __future__ import annotations

import datetime
import json
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

from planted.__main__ import THREADS

HERE = Path(__file__).parent


def main() -> int:
    import pytest

    from mutants.changes import Change, changes, count
    from mutants.traced import ASKED, TESTS, TRACE, modules
    from mutants.trials import Trials

    seed, number = (os.environ.get(name, "") for name in ("SEED", "COUNT"))
    if not TRACE.is_file():
        subprocess.run([sys.executable, "-m", "mutants.traced"], check=False)
    places = [(name, at) for name in modules() if not ASKED or {name, name.rpartition("/")[0]} & {*ASKED} for at in range(count(name))]
    # a tenth more, as some changes are none
    order = random.Random(int(seed or 1)).sample(places, min(len(places), int(number or 400) * 11 // 10))
    drawn = defaultdict[str, list[int]](list)
    for name, at in order:
        drawn[name].append(at)
    made = {(name, change.place[0]): change for name, numbers in drawn.items() for change in changes(name, numbers)}
    chosen = [made[place] for place in order if place in made][: int(number or 400)]
    print(f"{len(places):,} changes can be made; {len(chosen):,} are tried", flush=True)
    asked = "-".join(ASKED).replace("/", ".")[:200] or "all"  # file systems take 255 bytes
    out = TRACE.with_name(f"{asked}-{seed or 1}.jsonl")
    lines = out.read_text("utf-8").splitlines() if out.is_file() else []
    found = {line["key"]: line for line in map(json.loads, lines)}  # the last of a change
    listed = (HERE / "survivors.md").read_text("utf-8")

    def key(change: Change) -> str:
        return f"{change.key} ({change.place[0]})"

    def kind(change: Change) -> str:
        is_listed = f"\n- `{change.after}`" in listed.partition(f"\n## `{change.module}`\n")[2].partition("\n## ")[0]
        by, tried, reach = (found[key(change)][name] for name in ("by", "tried", "reach"))
        return "noticed" if by else "harmless" if is_listed else "lives" if tried == reach else "undecided"

    def tell(change: Change, by: str, tried: int, reach: int) -> None:
        found[key(change)] = {"key": key(change), "by": by, "tried": tried, "reach": reach}
        with out.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(found[key(change)], ensure_ascii=False) + "\n")
        if not by:
            where = f"{change.module}:{change.line} {change.function}: {kind(change)}, {tried} of {reach} tests"
            print(f"{where}\n    - {change.before}\n    + {change.after}", file=sys.stderr, flush=True)

    trials = Trials([change for change in chosen if key(change) not in found or kind(change) in ("lives", "undecided")], tell)
    with Path(os.devnull).open("w") as nowhere:
        kept = os.dup(1)
        os.dup2(nowhere.fileno(), 1)
        pytest.main([*TESTS, "--assert=plain"], plugins=[trials])
        os.dup2(kept, 1)
    counted = Counter((room, kind(each)) for each in chosen if key(each) in found for room in ("all", each.module.rpartition("/")[0]))
    table = (
        "| | tried | noticed | harmless | live on all their tests | live on those there was time for | noticed of those with an effect |\n"
        + "|---" * 7
        + "|"
    )
    for room in sorted({room for room, _ in counted}):
        noticed, harmless, lives, undecided = figures = [counted[room, each] for each in ("noticed", "harmless", "lives", "undecided")]
        share = f"{noticed / (sum(figures) - harmless or 1):.1%}"
        table += f"\n| {room} | {sum(figures):,} | {noticed:,} | {harmless:,} | {lives:,} | {undecided:,} | {share} |"
    print(table)
    if os.environ.get("PREP_ASSETS_WRITE_DOCS"):
        page = HERE / "measured.md"
        head, _, rest = page.read_text("utf-8").partition("\n## ")
        commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        today = datetime.datetime.now(datetime.UTC).date()
        earlier = f"\n## {rest}" if rest else ""
        page.write_text(f"{head.rstrip()}\n\n## {today}, `{commit}`, seed {seed or 1}\n\n{table}\n{earlier}", "utf-8")
    return int(counted["all", "lives"] + counted["all", "undecided"] > 0)


if __name__ == "__main__":
    if not {*THREADS} <= {*os.environ} or os.environ.get("PYTHONHASHSEED") != "0":
        # libraries read these when they are imported, and a process with threads cannot be forked
        os.environ |= {**dict.fromkeys(THREADS, "1"), "TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "0", "CI": "1"}
        os.execv(sys.executable, [sys.executable, "-m", "mutants"])
    sys.exit(main())
