"""The direction of imports is the one that docs/architecture.md draws."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from prep_assets.extensions.exports.registry import exports
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.docs.extensions import STANDS_ON, USES
from prep_assets_tests.docs.pages import DOCS, blocks, read

PACKAGE = ROOT / "prep_assets"
DRAWN = next(block for block in blocks(DOCS / "architecture.md", "text") if block.startswith("errors, samples, version\n"))
*CORE, OUTER, BELOW = [line.split(", ") for line in DRAWN.splitlines()]
RANK = {room: rank for rank, rooms in enumerate(CORE) for room in rooms}
ADDRESSES = {
    ("training.py", "prep_assets.extensions.training.data_sets"),
    ("definitions.py", "prep_assets.extensions.dagster.definitions"),
    ("definitions.py", "prep_assets.extensions.dagster.site"),
}
"""What users name in their files, and the extension that it leads to; so do names of the package itself."""
HEAVY = {"torch", "transformers", "h5py", "pyarrow", "tokenizers", "datasets", "gigatoken", "huggingface_hub"}


@dataclass(frozen=True)
class Import:
    """One import: which file, what it imports, whether at the top of the module, whether for type checkers only."""

    file: str
    module: str
    top: bool
    types: bool = False

    @property
    def here(self) -> str:
        """Room of the importing file."""
        return self.file.split("/")[0].removesuffix(".py")

    @property
    def there(self) -> str:
        """Room, or other package, that is imported."""
        parts = self.module.split(".")
        return (parts[1] if len(parts) > 1 else "") if parts[0] == "prep_assets" else ""

    @property
    def extension(self) -> str:
        """The extension that is imported."""
        return self.module.removeprefix("prep_assets.extensions").split(".")[1] if self.there in BELOW else ""

    @property
    def package(self) -> str:
        """Top-level package that is imported."""
        return self.module.split(".")[0]


def statements(nodes: Sequence[ast.AST], for_types: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every statement below some, and whether it is for type checkers only. Expressions, which are most of a file, hold none."""
    for node in nodes:
        checked = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        yield node, for_types or checked
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, part, ()), for_types or checked)


def imports_of(path: Path, base: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions and those for type checkers too."""
    tree = ast.parse(path.read_text("utf-8"))
    name, at_top = path.relative_to(base).as_posix(), {id(node) for node in tree.body}
    for node, for_types in statements(tree.body):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [f"prep_assets.{alias.name}" for alias in node.names] if node.module == "prep_assets" else [node.module]
        else:
            continue
        yield from (Import(name, module, id(node) in at_top, for_types) for module in modules)


@cache
def imports() -> list[Import]:
    """All of the package."""
    return [found for path in sorted(PACKAGE.rglob("*.py")) for found in imports_of(path, PACKAGE)]


def allowed(found: Import) -> bool:
    """Whether the drawing lets one room use another."""
    here, there = found.here, found.there
    if here in BELOW:
        own = found.file.split("/")[1]
        return there not in BELOW or found.extension in (own, *STANDS_ON.get(own, "").split())
    if there in ("", here) or here in ("__init__", "__main__"):
        return True
    if there in RANK:
        return here in OUTER or RANK[there] <= RANK[here]
    return (found.file, found.module) in ADDRESSES


def test_every_room_is_drawn() -> None:
    found = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert found - {"__init__", "__main__", "_configs"} == {*RANK, *OUTER, *BELOW}


def test_rooms_use_only_what_is_drawn_above_them() -> None:
    assert [f"{found.file} imports {found.module}" for found in imports() if not allowed(found)] == []


def test_files_import_each_other_in_no_circle() -> None:
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    known = {"prep_assets": "__init__.py"} | {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in modules
    }
    uses: dict[str, set[str]] = {name: set() for name in modules}
    for found in imports():
        if (used := known.get(found.module.removeprefix("prep_assets."))) and used != found.file:
            uses[found.file].add(used)
    order = [*TopologicalSorter(uses).static_order()]  # raises CycleError
    assert len(order) == len(modules) and sum(map(len, uses.values())) > len(modules)


def test_only_one_extension_uses_dagster() -> None:
    events = "extensions/neighbours/dagster_events.py"
    outside = [found for found in imports() if found.package == "dagster" and not found.file.startswith("extensions/dagster/")]
    assert {found.file for found in outside} == {events}


@pytest.mark.parametrize("extension", USES)
def test_what_an_extension_uses_is_listed(extension: str) -> None:
    """The list may only become shorter: what an extension needs of the kernel is what the kernel has to keep."""
    folder = f"extensions/{extension}/"
    used = {
        found.module.removeprefix("prep_assets.")
        for found in imports()
        if found.file.startswith(folder) and found.there not in ("", "array_types", *BELOW)
    }
    assert sorted(used) == USES[extension].split()


def test_extensions_stand_on_those_that_the_page_names() -> None:
    used: dict[str, set[str]] = {}
    for found in imports():
        if found.here in BELOW and found.there in BELOW and (own := found.file.split("/")[1]) != found.extension:
            used.setdefault(own, set()).add(found.extension)
    assert {own: " ".join(sorted(others)) for own, others in used.items()} == STANDS_ON
    table = read(DOCS / "architecture.md").partition("| extension | stands on |\n")[2].partition("\n\n")[0]
    drawn = re.findall(r"^\| (`.*`) \| (`.*`) \|$", table, re.MULTILINE)
    assert {own: " ".join(re.findall(r"`(\w+)`", others)) for each, others in drawn for own in re.findall(r"`(\w+)`", each)} == STANDS_ON
    assert len([*TopologicalSorter(used).static_order()]) >= len(used)  # raises CycleError


def test_every_extension_has_a_list() -> None:
    assert sorted(path.name for path in (PACKAGE / "extensions").iterdir() if path.is_dir() and path.name != "__pycache__") == sorted(USES)


def test_only_processes_that_are_ours_are_set_up() -> None:
    """A library leaves collector, allocators and signals of somebody else's process alone."""
    for module in ("prep_assets.own_process", "gc", "ctypes"):
        assert {each.file for each in imports() if each.module == module} <= {
            "own_process.py",
            "cli/entry.py",
            "workers/pool.py",
            "extensions/ray/tasks.py",
        }
    users = {each.file for each in imports() if each.module == "prep_assets.own_process"}
    assert users == {"cli/entry.py", "workers/pool.py", "extensions/ray/tasks.py"}
    words = re.compile(r"SetAsyncExc|mallopt|set_memory_pool|gc\.collect|del sys\.modules")
    assert {path.name for path in PACKAGE.rglob("*.py") if words.search(path.read_text("utf-8"))} == {"own_process.py"}


def test_no_type_of_ours_is_found_by_an_attribute() -> None:
    """What asks for one asks the platform, foreign code, or Jinja's protocol of safe text."""
    asked = {path.name for path in PACKAGE.rglob("*.py") if "hasattr(" in path.read_text("utf-8")}
    assert asked == {"pool.py", "verification.py", "plugins.py", "run_code.py", "template.py"}


def test_only_training_uses_torch() -> None:
    assert [found for found in imports() if found.package == "torch" and not found.file.startswith("extensions/training/")] == []


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    assert [
        found for found in imports() if found.package in HEAVY and found.top and not found.file.startswith("extensions/training/")
    ] == []


FACTS = {"text.environment", "text.vocabulary", "text.engines", "text.ids", "text.chats", "text.forms"}
"""What proofs may know of the rooms that made what they prove: what a template's messages look like, what it runs in, the reference tokenizer, and how texts
stand among the frames of a form. What is trained there they say themselves."""
MADE_IT = {"text", "schemas", "pipeline", "checks", "graph", "packing"}


def proves(parts: Sequence[str]) -> bool:
    """Whether a module is of the proofs, or of those of an extension: a package or a file of this name in it."""
    return parts[0] == "proofs" or (parts[0] == "extensions" and "proofs" in parts[2:])


def shares_code(found: Import) -> bool:
    """Whether a proof uses code of what it proves."""
    module = found.module.removeprefix("prep_assets.")
    # options say what is asked for, as those of the kernel do
    made_it = (
        module not in FACTS
        if found.there in MADE_IT
        else found.there in BELOW and not (proves(parts := module.split(".")) or parts[2:] == ["options"])
    )
    return proves(found.file.removesuffix(".py").split("/")) and not found.types and made_it


def test_proofs_share_no_code_with_what_they_prove() -> None:
    assert [f"{found.file} imports {found.module}" for found in imports() if shares_code(found)] == []


def shared(of: str, rooms: set[str]) -> set[str]:
    """What a room has of others, module by module."""
    uses = (found for found in imports() if found.here == of and found.there in rooms and not found.types)
    return {found.module.removeprefix("prep_assets.") for found in uses}


def test_the_page_lists_what_checks_and_builds_share() -> None:
    part = read(DOCS / "checks.md").partition("## What checks share with builds\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", part, re.MULTILINE)
    listed = [name for names, why in rows for name in re.findall("`(.*?)`", names) if why]
    assert sorted(listed) == sorted(shared("checks", MADE_IT - {"checks"}))
    assert {*re.findall(r"`(proofs\..*?)`", part)} == shared("pipeline", {"proofs"})
    assert [shared(room, {"proofs"}) for room in ("data", "schemas", "text", "packing", "stores")] == [set()] * 5


@pytest.mark.parametrize("file", ["proofs/mask.py", "extensions/rl/proofs.py", "extensions/rl/proofs/golds.py"])
@pytest.mark.parametrize("module", ["text.conversation", "extensions.rl.lines"])
def test_a_proof_that_uses_what_builds_is_found(tmp_path: Path, file: str, module: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(f"def f():\n    from prep_assets.{module} import messages\n    from prep_assets.extensions.rl.proofs import a", "utf-8")
    assert [shares_code(found) for found in imports_of(path, tmp_path)] == [True, False]


WHAT_ROWS_SAY = {"prep_assets.extensions.exports.readable"}
"""What a reader of an export may use of its room: neither says how a format is written."""


def read_as_written(path: Path) -> dict[str, set[str]]:
    """Format → what its reader has of what wrote it: names of its module that both use, and imports from other modules of the room."""
    tree = ast.parse(path.read_text("utf-8"))
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    constants = {each.id: node for node in tree.body if isinstance(node, ast.Assign) for each in node.targets if isinstance(each, ast.Name)}
    known: dict[str, ast.stmt] = {**defined, **constants}
    imported = {alias.name: node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}

    def used(name: str, seen: set[str]) -> set[str]:
        for node in ast.walk(known[name]):
            if isinstance(node, ast.Name) and node.id not in seen and node.id in {*known, *imported}:
                seen.add(node.id)
                if node.id in known:
                    used(node.id, seen)
        return seen

    registered: dict[str, dict[str, str]] = {"exporter": {}, "reads": {}}
    for name, node in defined.items():
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in registered:
                registered[call.func.id][ast.literal_eval(call.args[0])] = name
    shared = {}
    for format in registered["exporter"].keys() & registered["reads"].keys():
        writer, reader = registered["exporter"][format], registered["reads"][format]
        read, written = used(reader, {reader}), used(writer, {writer})
        ours = {
            name
            for name in read
            if re.match(r"prep_assets\.extensions\.exports\.", imported.get(name, "")) and imported[name] not in WHAT_ROWS_SAY
        }
        shared[format] = (ours - {"reads"}) | (read & written & known.keys())
    return shared


def test_exports_are_read_back_by_other_code() -> None:
    shared = [
        read_as_written(path)
        for path in sorted(path for folder in ("exports", "topology", "atif") for path in (PACKAGE / "extensions" / folder).glob("*.py"))
    ]
    found = {name: names for each in shared for name, names in each.items()}
    assert {name: names for name, names in found.items() if names} == {}, (
        "these readers use the code of their writers: let each read by code of its own"
    )
    assert found.keys() == exports().keys(), "each format needs a function with @reads, in the file of its writer"


@pytest.mark.parametrize(
    ("body", "found"),
    [("return rows(folder)", {"rows"}), ("return _at(folder)", {"_at"}), ("return ENDS[0]", {"ENDS"}), ("return cut(folder)", set())],
)
def test_a_reader_that_uses_the_writer_is_found(tmp_path: Path, body: str, found: set[str]) -> None:
    path = tmp_path / "mds.py"
    path.write_text(
        "from prep_assets.extensions.exports.blocks import rows\nfrom prep_assets.extensions.exports.readable import cut\nENDS = [1]\n"
        '@exporter("mds")\ndef mds(source):\n    return _at(rows(source), ENDS)\ndef _at(a, b): ...\n'
        f'@reads("mds")\ndef read(folder):\n    {body}\n',
        "utf-8",
    )
    assert read_as_written(path) == {"mds": found}


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("config/models.py", "from prep_assets.graph.graph import ASSETS"),
        ("stores/table.py", "from prep_assets import proofs"),
        ("cli/build.py", "def f():\n    import prep_assets.extensions.dagster.site"),
        ("cli/main.py", "def f():\n    from prep_assets.extensions.neighbours import hub"),
        ("extensions/astrai/run.py", "from prep_assets.extensions.neighbours import hub"),
    ],
)
def test_an_import_the_other_way_round_is_found(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(line, "utf-8")
    assert [allowed(found) for found in imports_of(path, tmp_path)] == [False]
