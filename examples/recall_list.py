"""Looks for everything in the stores that was made by what is known to be wrong: a list of rules, one a line, with the reason behind ``#``.

    python examples/recall_list.py examples/recalls.txt [options of prep-assets recall, such as --among mlruns]

A step of a nightly job: exit code 1 where a rule means something or cannot be told. `prep-assets recall RULE --yes --reason …` then sets it aside.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def main(rules: Path, *options: str) -> int:
    failed = False
    for line in rules.read_text("utf-8").splitlines():
        rule, _, reason = map(str.strip, line.partition("#"))
        if rule:
            done = subprocess.run(["prep-assets", "recall", rule, "--json", *options], capture_output=True, text=True, check=False)
            found = json.loads(done.stdout)["found"] if done.stdout else []
            said = [f"{each['store']} {each['where']}: {each['state']}, {each['why']}" for each in found]
            print(f"{rule}: {reason}", *(said or [done.stderr.strip() or "nothing was made so"]), sep="\n  ")
            failed |= done.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
