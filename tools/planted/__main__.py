"""``python -m planted``: plant bugs in code that builds, one at a time, and see whether the checks stop the build.

MODULE names rooms or modules (``text schemas/turns``), all of them if it is empty; SEED draws COUNT bugs; JOBS trials run at a time. Results are lines of JSON
in ``build/planted/``; those that are there already are not tried again. A published bug that `survivors.md` beside this file does not list makes the run fail.
PREP_ASSETS_WRITE_DOCS=1 adds the figures to `measured.md`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

THREADS = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


def by_hand() -> None:
    """Plant the changes that the file named by the first argument lists, and write what becomes of each to the second."""
    import pytest

    from planted.candidates import Edit
    from planted.server import Server
    from planted.workspaces import workspaces
    from prep_assets_tests.effort import few_code_points, in_memory, without_fsync

    in_memory()
    without_fsync()
    few_code_points(pytest.MonkeyPatch())
    asked, answers = map(Path, sys.argv[1:])
    edits = {name: (workspace, Edit.of(*change)) for name, (workspace, *change) in json.loads(asked.read_text("utf-8")).items()}
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        server = Server(workspaces(Path(folder), frozenset(workspace for workspace, _ in edits.values())), Path(folder))
        server.start()
        if server.left_out:
            raise SystemExit("\n".join(server.left_out))
        names = {bug: (name, workspace) for name, (workspace, bug) in edits.items()}
        found = {names[bug][0]: result for bug, result in server.results(names, lambda bug: [names[bug][1]])}
    answers.write_text(json.dumps(found), "utf-8")


def main() -> int:
    from planted import page
    from planted.candidates import ROOT, modules, plants
    from planted.server import Server
    from planted.workspaces import workspaces
    from prep_assets_tests.effort import in_memory, without_fsync

    modules_asked, seed, count, jobs = (os.environ.get(name, "") for name in ("MODULE", "SEED", "COUNT", "JOBS"))
    names = [name for name in modules() if not modules_asked or any(f"{name}/".startswith(f"{each}/") for each in modules_asked.split())]
    in_memory()
    without_fsync()
    out = ROOT / "build" / "planted" / f"{'-'.join(modules_asked.replace('/', '.').split()) or 'all'}-{seed or 1}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {json.loads(line)["key"] for line in out.read_text("utf-8").splitlines()} if out.is_file() else set()
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        server = Server(workspaces(Path(folder)), Path(folder))
        server.start(out.parent)
        for fault in server.left_out:
            print(f"left out: {fault}", flush=True)
        found = {bug.key: bug for name in names for bug in plants(name) if server.workspaces_of(bug)}
        drawn = random.Random(int(seed or 1)).sample(sorted(found), min(int(count or 200), len(found)))
        print(f"{len(found):,} bugs can be planted; {len(drawn):,} drawn, {len(done & {*drawn}):,} of them tried before", flush=True)
        verdicts = Counter[str]()
        with out.open("a", encoding="utf-8") as stream:
            for bug, result in server.results([found[key] for key in drawn if key not in done], jobs=int(jobs or 1)):
                listed = result["verdict"] == "published" and page.reason(bug) is not None
                line = {
                    "key": bug.key,
                    "module": bug.module,
                    "function": bug.function,
                    "line": bug.line,
                    "change": bug.kind,
                    "before": bug.before,
                    "after": bug.after,
                    **result,
                    "listed": listed,
                }
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
                stream.flush()
                verdicts["listed" if listed else result["verdict"]] += 1
                if result["verdict"] == "published" and not listed:
                    print(
                        f"published ({result['kind']}, {result['workspace']}): {bug.module}:{bug.line} {bug.function}\n    - {bug.before}\n    + {bug.after}",
                        flush=True,
                    )
                if sum(verdicts.values()) % 50 == 0:
                    print(dict(verdicts), flush=True)
    print(page.table(out))
    if os.environ.get("PREP_ASSETS_WRITE_DOCS"):
        page.write(out, seed or "1")
    return int(verdicts["published"] > 0 or bool(server.left_out))


if __name__ == "__main__":
    if not {*THREADS} <= {*os.environ} or os.environ.get("PYTHONHASHSEED") != "0":
        # libraries read these when they are imported, and a process with threads cannot be forked; what numba compiled would hold no planted bug
        own = {"TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "0", "CI": "1", "NUMBA_DISABLE_JIT": "1"}
        os.environ |= {**dict.fromkeys(THREADS, "1"), **own}
        os.execv(sys.executable, [sys.executable, "-m", "planted", *sys.argv[1:]])
    sys.exit(by_hand() if sys.argv[1:] else main())
