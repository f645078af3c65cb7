"""What a domain says of its rows: fields, names of speakers, code of the user's own, conversational rows."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.checks.selection import SELECTION
from prep_assets.config.family import Domain
from prep_assets.config.models import Sft
from prep_assets.engine import state
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.extensions.preference.config import Preference
from prep_assets.extensions.rl.config import Rl
from prep_assets.graph.graph import ASSETS, EVERY
from prep_assets.own_code import own_code_hash, source_files
from prep_assets.pipeline.asset import Store
from prep_assets.pipeline.workspace import Workspace
from prep_assets.schemas.registry import convert_with
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets.text.load_template import named_templates
from prep_assets_tests.effort import SOAK
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.every_template import CHATML, PROMPT, tokenizer, trl, workspace_of
from prep_assets_tests.graph.families import FAMILIES, ROW
from prep_assets_tests.graph.workspaces import build, build_all, domain, jsonl, make, minimal, part_of, refusals, verdicts, workspace_in

# Fields that a schema does not read: counted where somebody says that they have no effect, else a reason to refuse or to stop.


SCHEMAS = {**{family: tried.schema for family, tried in FAMILIES.items()}, "groups": "group"}


def rows(family: str, count: int = 6) -> list[dict[str, Any]]:
    """Rows that differ, without a further field."""
    return [ROW[SCHEMAS[family]](f"q{number}", "good", "bad") for number in range(count)]


def built(make: Make, tmp_path: Path, family: str, content: list[dict[str, Any]], **more: Any) -> tuple[Workspace, Published]:
    kind = "rl" if family == "groups" else family
    workspace = make(minimal(kind, {"a": domain(jsonl(tmp_path / "a.jsonl", content), SCHEMAS[family], **more)}))
    first = next(name for name, asset in EVERY.items() if asset.family == kind and asset.partitioned and asset.streams)
    return workspace, build(workspace, "rl_groups_by_domain" if family == "groups" else first, "a")


@pytest.mark.parametrize("family", SCHEMAS)
def test_an_unknown_field_stops_the_build_and_the_line_that_it_prints_mends_it(make: Make, tmp_path: Path, family: str) -> None:
    """Audit W11 and W19: fields of all kinds vanished from every family without a word."""
    content = [{**row, "mood": "good", "id": 7} if number % 2 else {**row, "mood": "", "id": 7} for number, row in enumerate(rows(family))]
    with pytest.raises(ConfigError, match=r"domain a: .*\n  'mood' in 3 rows, e\.g\. 'good'\n(.|\n)*  ignore: \[mood\]$") as stopped:
        built(make, tmp_path, family, content)
    listed = yaml.safe_load(str(stopped.value).rpartition("\n")[2])
    workspace, published = built(make, tmp_path, family, content, **listed)
    assert published.manifest.counts["fields_passed_over"] == {"a": {"id": 6, "mood": 3}}
    assert published.manifest.counts["kept"] == 6
    assert verdicts(workspace, published)["accounting"].summary.endswith("fields left unread: a/id in 6, a/mood in 3")


@pytest.mark.parametrize("family", SCHEMAS)
def test_a_field_that_only_a_later_block_has_stops_the_build_then(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    from prep_assets.pipeline import examples as reading

    small = reading.read_blocks
    monkeypatch.setattr(reading, "read_blocks", lambda file, number, **more: small(file, number, **{**more, "block_bytes": 1}))
    content = rows(family, 30)
    content[25] = {**content[25], "mood": {"today": ["good"]}}
    with pytest.raises(ConfigError, match=r"'mood' in 1 row, e\.g\. \{'today'"):
        built(make, tmp_path, family, content)


@pytest.mark.parametrize("family", SCHEMAS)
def test_a_decisive_field_without_a_place_refuses_its_row_alone(make: Make, tmp_path: Path, family: str) -> None:
    content = rows(family)
    content[2] = {**content[2], "history": [["q", "a"]]}
    content[4] = {**content[4], "videos": ["v.mp4"]}
    _, published = built(make, tmp_path, family, content)
    assert [(each.id, each.stage, each.reason) for each in refusals(published)] == [
        ("a.jsonl:3", "schema", "unsupported_column"),
        ("a.jsonl:5", "schema", "video_count" if family == "sft" else "unsupported_media"),  # chats have a place for videos
    ]
    _, whole = built(make, tmp_path, family, content, ignore=["history", "videos"])
    assert whole.manifest.counts["kept"] == 6


def test_fields_inside_messages_stop_the_build_as_well(make: Make, tmp_path: Path) -> None:
    content = [{"messages": [{"role": "user", "content": "q", "mood": "good"}, {"role": "assistant", "content": "a", "id": 3}]}]
    with pytest.raises(ConfigError, match=r"ignore: \[messages\.mood\]"):
        built(make, tmp_path, "sft", content)
    _, published = built(make, tmp_path, "sft", content, ignore=["messages.mood"])
    assert published.manifest.counts["fields_passed_over"] == {"a": {"messages.id": 1, "messages.mood": 1}}


def test_fields_that_choose_rows_are_accounted_for(make: Make, tmp_path: Path) -> None:
    content = [{**row, "kind": "chat", "stars": 5} for row in rows("sft")]
    more = {"where": {"stars": {">": 3}}, "domain_key": "kind", "domain_value": "chat"}
    _, published = built(make, tmp_path, "sft", content, **more)
    assert "fields_passed_over" not in published.manifest.counts and published.manifest.counts["kept"] == 6


def test_a_condition_carries_neither_a_system_prompt_nor_a_weight(make: Make, tmp_path: Path) -> None:
    """Documents that `where` chose by their weight all weighed 1; what a label or a weight of 1 says is true of every row that is read."""
    content = [{**row, "weight": weight, "label": True} for row, weight in zip(rows("pretrain"), (1, 1.0, 1, 0.5, 2, 0), strict=True)]
    _, published = built(make, tmp_path, "pretrain", content, where={"weight": {">": 0}, "label": True})
    assert [(each.id, f"{each.stage}/{each.reason}") for each in refusals(published)] == [
        ("a.jsonl:4", "schema/unsupported_column"),
        ("a.jsonl:5", "schema/unsupported_column"),
        ("a.jsonl:6", "records/filtered_by_where"),
    ]
    _, listed = built(make, tmp_path, "pretrain", content, where={"weight": {">": 0}}, ignore=["weight", "label"])
    assert listed.manifest.counts["kept"] == 5


def test_fields_of_a_row_that_is_refused_for_what_it_became_are_not_counted(make: Make, tmp_path: Path) -> None:
    """They were, and a second reading, which counts kept rows, failed the store."""
    says = [{"type": "user", "content": [{"a": "q"}]}, {"type": "assistant", "content": [{"b": "a"}]}]
    spaced = [says[0], {"type": "assistant", "content": [{"text": " "}, {"thinking": "a"}], "semantic_loss_weight": [0, 1]}]
    file = jsonl(tmp_path / "a.jsonl", [{"id": 1, "semantic_data_array": says}, {"id": 2, "semantic_data_array": spaced}])
    workspace = make(minimal("sft", {"a": domain(file, "semantic")}))
    published = build(workspace, "sft_tokens", "a")
    assert published.manifest.counts["fields_passed_over"] == {"a": {"id": 1}}
    assert [each.reason for each in refusals(published)] == ["weighted_space"]


def test_an_answer_labelled_bad_is_never_trained(make: Make, tmp_path: Path) -> None:
    """Audit W18: a bad answer was trained where its schema did not look at the label."""
    content = rows("sft")
    content[0] = {**content[0], "label": False}
    content[1] = {**content[1], "kto_tag": True}
    _, published = built(make, tmp_path, "sft", content)
    assert [(each.id, each.reason) for each in refusals(published)] == [("a.jsonl:1", "undesirable")]


def test_a_field_of_a_users_own_schema_is_accounted_for(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trivia_schema.py").write_text(
        "import json\n"
        "from prep_assets.samples import ASSISTANT, USER, Sample, turn\n"
        "def some(row): return Sample((turn(USER, row['q']), turn(ASSISTANT, row.get('a'))))\n"
        "def every(row): return Sample((turn(USER, json.dumps(row)), turn(ASSISTANT, {**row}['a'])), tuple(row['backend']))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    content = [{"q": f"q{i}", "a": "a", "backend": [{"type": "function", "function": {"name": "f", "parameters": {}}}]} for i in range(3)]
    file = jsonl(tmp_path / "a.jsonl", content)
    for function, stops in (("some", True), ("every", False)):
        workspace = make(minimal("sft", {"a": domain(file, f"trivia_schema:{function}")}, template="qwen3"), function)
        build(workspace, "sft_raw", "a")
        if stops:
            with pytest.raises(PrepAssetsError, match=r"ignore: \[backend\]"):
                build(workspace, "sft_tokens", "a")
        else:
            assert build(workspace, "sft_tokens", "a").manifest.counts["kept"] == 3


def test_a_field_that_is_read_in_some_rows_is_counted_in_the_others(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows hold something there than were passed over, so only converting them again tells how many; the check took any smaller number for right."""
    (tmp_path / "some_schema.py").write_text(
        "from prep_assets.samples import ASSISTANT, USER, Sample, turn\n"
        "def some(row): return Sample((turn(USER, row['source'] if row['q'] == 'q1' else row['q']), turn(ASSISTANT, 'a')))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    file = jsonl(tmp_path / "a.jsonl", [{"q": f"q{i}", "source": "s", "id": i} for i in range(4)])
    workspace = make(minimal("sft", {"a": domain(file, "some_schema:some", ignore=["id"])}))
    published = build(workspace, "sft_tokens", "a")
    assert published.manifest.counts["fields_passed_over"] == {"a": {"id": 4, "source": 3}}
    for fields, fault in (
        ({"id": 4, "source": 2}, "of domain a 'source' is passed over in 3 rows by a second reading, in 2 as the manifest says"),
        ({"id": 4}, "of domain a 'source' is passed over, which the manifest does not name"),
    ):
        manifest = replace(published.manifest, counts={**published.manifest.counts, "fields_passed_over": {"a": fields}})
        assert SELECTION.run(Store(workspace, ASSETS["sft_tokens"], replace(published, manifest=manifest))).summary == fault


def test_what_is_ignored_is_part_of_the_recipe_and_nothing_else_is_changed() -> None:
    plain = Domain.model_validate({"files": ["a.jsonl"], "schema": "text"})
    assert plain.reading == ["text", {}, None, "line", {}, None, None, None]
    assert plain.model_copy(update={"ignore": ("b", "a")}).reading == [*plain.reading, {"ignore": ["a", "b"]}]


# Names of speakers with every template: left out and counted, or in front of the text, they give the tokens of the same chats written by hand.


CALL = {"id": "c12345678", "type": "function", "function": {"name": "sum", "arguments": {"n": 2}}}
TOOL = {"type": "function", "function": {"name": "sum", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}
SHOWS = CHATML.replace("{{ m.role }}", "{{ m.role }}{{ ' name=' + m.name if m.name }}") + PROMPT


def chat(*messages: tuple[str, str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": text, **({"name": name} if name else {})} for role, name, text in messages]}


def by_hand(row: dict[str, Any], *, written: bool) -> dict[str, Any]:
    """The row without names, or with each in front of its text."""
    messages = [
        message
        if message["role"] == "tool"
        else {
            **{key: value for key, value in message.items() if key != "name"},
            "content": f"{message['name']}: {message['content']}" if written and "name" in message else message["content"],
        }
        for message in row["messages"]
    ]
    return {**row, "messages": messages}


NAMED = [
    chat(("user", "ann", "Hi"), ("assistant", "", "Well.")),
    chat(("system", "boss", "Be kind."), ("user", "ann", "Hello"), ("assistant", "bot", "Well.")),
    chat(("user", "ann", " Who?"), ("assistant", "", "You."), ("user", "ben", "And I?"), ("assistant", "", "You too.")),
    {
        "messages": [
            {"role": "user", "name": "ann", "content": "1 + 1?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": CALL["id"], "name": "sum", "content": "2"},
            {"role": "assistant", "content": "Two."},
        ],
        "tools": [TOOL],
    },
]
BARE = [chat(("user", "", f"What is {number}?"), ("assistant", "", "It is it.")) for number in range(3)]
SPEAKER_NAMES_ROWS = [*NAMED, *BARE]
DOMAINS: Mapping[str, Any] = {
    "keep": (SPEAKER_NAMES_ROWS, {}),
    "leave_out": (SPEAKER_NAMES_ROWS, {"speaker_names": "leave_out"}),
    "left_out": ([by_hand(row, written=False) for row in SPEAKER_NAMES_ROWS], {}),
    "write": (SPEAKER_NAMES_ROWS, {"speaker_names": "write"}),
    "written": ([by_hand(row, written=True) for row in SPEAKER_NAMES_ROWS], {}),
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer("bytes", tmp_path_factory.mktemp("tokenizers") / "bytes")


def content(store: Published) -> list[Any]:
    """Everything that is trained with, and which rows are refused."""
    opened = open_stream(store.directory, "train")
    arrays = [opened.columns[key].values[:].tolist() for key in ("tokens", "loss_mask")]
    return [*arrays, opened.lengths.tolist(), [(each.id.rpartition(":")[2], each.reason) for each in refusals(store)]]


def wrong(workspace: Workspace) -> list[str]:
    """What is wrong with the stores of one template."""
    stores = {name: build(workspace, "sft_tokens", name) for name in DOMAINS}
    found = []
    for set_so, made_so in (("leave_out", "left_out"), ("write", "written")):
        found += [f"{set_so} is not {made_so}"] if content(stores[set_so]) != content(stores[made_so]) else []
    passed_over = {name: store.manifest.counts.get("fields_passed_over") for name, store in stores.items()}
    found += [] if passed_over == dict.fromkeys(DOMAINS) | {"leave_out": {"leave_out": {"messages.name": 4}}} else [str(passed_over)]
    refused = [each for each in refusals(stores["keep"]) if each.reason == "template_drops_names"]
    found += (
        [] if all("speaker_names: write" in each.detail and "speaker_names: leave_out" in each.detail for each in refused) else ["untold"]
    )
    return found if refused else [*found, "names are shown"]


def faults(folder: Path, templates: Mapping[str, str], tokens: Path) -> dict[str, list[str]]:
    found = {}
    for number, (name, source) in enumerate(templates.items()):
        stops = "none" if name == "glm4moe" else "turn"  # which ends no answer
        try:
            found[name] = wrong(workspace_of(folder / str(number), source, tokens, DOMAINS, train_on_eos=stops))
        except PrepAssetsError as error:
            found[name] = [str(error)]
    return {name: each for name, each in found.items() if each}


def test_shipped_templates(tmp_path: Path, tokens: Path) -> None:
    """In `make test` every fourth one."""
    assert not faults(tmp_path, dict(list(named_templates().items())[:: 1 if SOAK else 4]), tokens)


def test_published_templates(tmp_path: Path, tokens: Path, real_data: Path) -> None:
    """But for the training variants, which render the same."""
    assert not faults(tmp_path, {name: source for name, source in trl(real_data).items() if not name.endswith("_training")}, tokens)


def test_a_template_that_shows_names(tmp_path: Path, tokens: Path) -> None:
    workspace = workspace_of(tmp_path / "shows", SHOWS, tokens, {name: DOMAINS[name] for name in ("keep", "write")})
    kept, written = (build(workspace, "sft_tokens", name) for name in ("keep", "write"))
    vocabulary = workspace.vocabulary(workspace.family(Sft))

    def first(store: Published) -> str:
        return vocabulary.decode(open_stream(store.directory, "train").record(0, "tokens"))

    assert first(kept).startswith("<|im_start|>user name=ann\nHi<|im_end|>")
    assert first(written).startswith("<|im_start|>user\nann: Hi<|im_end|>")
    assert "fields_passed_over" not in kept.manifest.counts and "fields_passed_over" not in written.manifest.counts


@pytest.mark.parametrize(("mode", "asked", "counted"), [("write", "ann: Hi", {}), ("leave_out", "Hi", {"pairs": {"prompt.name": 4}})])
def test_preferences(tmp_path: Path, mode: str, asked: str, counted: Any) -> None:
    def said(text: str) -> list[dict[str, str]]:
        return [{"role": "assistant", "content": text}]

    question = [{"role": "user", "name": "ann", "content": "Hi"}]
    rows = [{"prompt": question, "chosen": said(f"Well, {number}."), "rejected": said(f"No, {number}.")} for number in range(4)]
    pairs = domain(jsonl(tmp_path / "pairs.jsonl", rows), "preference", speaker_names=mode)
    workspace = workspace_in(tmp_path, minimal("preference", {"pairs": pairs}))
    lines = build(workspace, "preferences_by_domain", "pairs")
    assert {line["prompt"] for line in open_stream(lines.directory, "preferences")} == {asked}
    assert lines.manifest.counts.get("fields_passed_over", {}) == counted
    build(workspace, "preference_tokens_by_domain", "pairs")


# A schema of the user's own is code: when its file changes, what was made with it is stale.


ROOT = Path(__file__).resolve().parents[2]
CODE = """\
from prep_assets.samples import Sample, turn
from prep_assets_tests.graph.workspaces import make

def questions(row, *, ask):
    return Sample((turn("user", ask + row["q"]), turn("assistant", row["a"])))
"""


def test_editing_the_function_makes_its_stores_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "own_schemas.py"
    code.write_text(CODE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "q.jsonl").write_text(json.dumps({"q": "2 + 2?", "a": "4"}) + "\n", "utf-8")
    domain = "{files: [q.jsonl], schema: 'own_schemas:questions', options: {ask: 'Q: '}}"
    (tmp_path / "sft.yaml").write_text(f"tokenizer: {ROOT / 'configs' / 'tokenizer'}\ndomains: {{own: {domain}}}\n", "utf-8")
    workspace = Workspace(tmp_path, tmp_path / "stores")
    for name in ("sft_raw", "sft_tokens"):
        assert make(workspace, ASSETS[name], "own").manifest.counts["kept"] == 1
        assert state(workspace, ASSETS[name], "own") == "current"
    code.write_text(CODE.replace('"user"', '"system"'), "utf-8")
    assert state(workspace, ASSETS["sft_raw"], "own") == "current"
    assert state(workspace, ASSETS["sft_tokens"], "own") == "stale"
    sys.modules.pop("own_schemas")
    importlib.invalidate_caches()


def test_shipped_schemas_have_no_code_of_their_own_and_a_missing_module_fails_when_it_is_loaded() -> None:
    assert own_code_hash("alpaca") is None
    assert own_code_hash("nowhere_at_all:function") is None
    with pytest.raises(ConfigError, match="nowhere_at_all"):
        convert_with("nowhere_at_all:function")


FILES = {
    "own_project/__init__.py": "",
    "own_project/rows.py": "import json\nimport numpy\nfrom own_project import words\nfrom .deep.more import clean\n"
    "def read(row):\n    import own_beside\n    return None\n",
    "own_project/words.py": "from prep_assets.samples import Sample\n",
    "own_project/deep/__init__.py": "",
    "own_project/deep/more.py": "from ..constants import *\nfrom own_other.place import thing\ndef clean(): ...\n",
    "own_project/constants.py": "ONE = 1\n",
    "own_project/unused.py": "",
    "own_other/place.py": "thing = 1\n",
    "own_beside.py": "import own_project.rows\n",
}
IMPORTED = sorted(set(FILES) - {"own_project/unused.py"})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    forget()


def forget() -> None:
    """Looking for a module imports the packages above it."""
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def test_every_module_of_the_project_that_it_imports_counts(project: Path) -> None:
    assert sorted(path.relative_to(project).as_posix() for _, path in source_files("own_project.rows")) == IMPORTED


@pytest.mark.parametrize("name", sorted(FILES))
def test_editing_a_module_that_a_schema_imports_changes_its_key(project: Path, name: str) -> None:
    """Only the file of the function itself was hashed: an edited helper left stale stores that looked current."""
    before = own_code_hash("own_project.rows:read")
    (project / name).write_text(FILES[name] + "# edited\n", "utf-8")
    assert (own_code_hash("own_project.rows:read") != before) == (name in IMPORTED)


def test_the_key_does_not_depend_on_where_the_project_is(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = own_code_hash("own_project.rows:read")
    moved = tmp_path_factory.mktemp("moved") / "here"
    project.rename(moved)
    monkeypatch.syspath_prepend(str(moved))
    forget()
    assert own_code_hash("own_project.rows:read") == before


def test_of_an_installed_package_its_own_modules_count() -> None:
    files = {name for name, _ in source_files("yaml.loader")}
    assert {"yaml", "yaml.loader", "yaml.reader"} <= files and {name.partition(".")[0] for name in files} == {"yaml"}


# Preferences and RL prompts with tools, tool calls and reasoning: the form of their files, and their tokens, proven.


FUNCTION = {"name": "f", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
TOOLS = [{"type": "function", "function": FUNCTION}]
CONVERSATIONAL_ROWS_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 2}}}],
}
THOUGHT = {"role": "assistant", "content": "4", "reasoning_content": "Two twos."}
PLAIN = [{"prompt": f"P{i}?", "chosen": "yes", "rejected": "no"} for i in range(3)]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


RICH: list[dict[str, Any]] = [
    {"prompt": [user("2 + 2?")], "chosen": [THOUGHT], "rejected": [assistant("5")]},
    {"prompt": [user("2 + 2?")], "chosen": [CONVERSATIONAL_ROWS_CALL], "rejected": [assistant("5")], "tools": TOOLS},
    {
        "prompt": [{"role": "system", "content": "Brief."}, user("2 + 2?")],
        "chosen": [CONVERSATIONAL_ROWS_CALL, {"role": "tool", "content": "4"}, assistant("4")],
        "rejected": [CONVERSATIONAL_ROWS_CALL, {"role": "tool", "content": "4"}, assistant("5")],
        "tools": TOOLS,
    },
    {"prompt": [user("Hi"), assistant("Hi."), user("Bye")], "chosen": [assistant("Bye.")], "rejected": [assistant("No.")]},
]


def preferences(folder: Path, rows: list[dict[str, Any]], **options: Any) -> tuple[Workspace, Published]:
    folder.mkdir(parents=True, exist_ok=True)
    data = {"p": domain(jsonl(folder / "p.jsonl", rows), "preference")}
    chosen = {"template": "qwen3", "test_fraction": 0.0, "shuffle": False, **options}
    workspace = workspace_in(folder, minimal("preference", data, **chosen))
    stores = build_all(workspace, ["preference"])
    return workspace, stores["preferences", ""]


def test_pairs_with_tools_and_reasoning_become_messages(tmp_path: Path) -> None:
    """They were refused: rows of this family had text only."""
    workspace, published = preferences(tmp_path, RICH)
    rows = list(open_stream(published.directory, "preferences"))
    plain = [{key: json.loads(value) if key == "tools" else value for key, value in row.items()} for row in rows]
    assert plain == RICH
    tokens = workspace.built("preference_tokens")
    assert tokens.manifest.counts["kept"] == 4
    decode = workspace.vocabulary(workspace.family(Preference)).backend.decode
    store = open_stream(tokens.directory, "chosen")
    trained = [decode(store.record(i, "tokens")[store.record(i, "loss_mask") != 0].tolist(), skip_special_tokens=False) for i in range(4)]
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 2}}\n</tool_call><|im_end|>'
    empty = "<think>\n\n</think>\n\n"
    assert trained == [
        "<think>\nTwo twos.\n</think>\n\n4<|im_end|>",
        f"{empty}{call}",
        f"{call}{empty}4<|im_end|>",
        f"{empty}Bye.<|im_end|>",
    ]
    assert "# Tools" in decode(store.record(1, "tokens").tolist(), skip_special_tokens=False)


@pytest.mark.parametrize("form", ["auto", "text", "messages"])
def test_one_form_for_the_whole_store(tmp_path: Path, form: str) -> None:
    workspace, published = preferences(tmp_path, [*PLAIN, *RICH[:1]], form=form)
    rows = list(open_stream(published.directory, "preferences"))
    kinds = {type(row[part]) for row in rows for part in ("prompt", "chosen", "rejected")}
    assert kinds == ({str} if form == "text" else {list})
    assert part_of(workspace, "preferences", "p").manifest.counts["refused"] == ({"pair/not_plain_text": 1} if form == "text" else {})
    assert published.manifest.counts["kept"] == len(rows) == (3 if form == "text" else 4)


def test_auto_writes_strings_where_they_do_and_does_not_change_for_a_row_that_is_refused(tmp_path: Path) -> None:
    empty = {"prompt": [user("2 + 2?")], "chosen": [THOUGHT], "rejected": [{**THOUGHT}]}
    _, published = preferences(tmp_path / "auto", [*PLAIN, empty])
    assert list(open_stream(published.directory, "preferences")) == PLAIN
    _, text = preferences(tmp_path / "text", PLAIN, form="text")
    assert list(open_stream(text.directory, "preferences")) == PLAIN


def test_the_same_reasoning_in_field_and_text_stands_once_in_a_pair(tmp_path: Path) -> None:
    both = {"role": "assistant", "content": "<think>Two twos.</think>4", "reasoning_content": "Two twos."}
    _, published = preferences(tmp_path, [{"prompt": [user("2 + 2?")], "chosen": [both], "rejected": [assistant("5")]}])
    (row,) = open_stream(published.directory, "preferences")
    assert row == {"prompt": "2 + 2?", "chosen": "<think>Two twos.</think>4", "rejected": "5"}


def test_labelled_answers_carry_them_too(tmp_path: Path) -> None:
    rows = [
        {"messages": [user("2 + 2?"), CONVERSATIONAL_ROWS_CALL], "label": True, "tools": TOOLS},
        {"messages": [user("?"), assistant("4")], "label": False},
    ]
    workspace = workspace_in(tmp_path, minimal("preference", {"k": domain(jsonl(tmp_path / "k.jsonl", rows), "kto")}, test_fraction=0.0))
    published = build(workspace, "preferences")
    assert refusals(part_of(workspace, "preferences", "k")) == []
    found = {row["label"]: row for row in open_stream(published.directory, "unpaired")}
    assert found[True] == {"prompt": [user("2 + 2?")], "completion": [CONVERSATIONAL_ROWS_CALL], "label": True, "tools": json.dumps(TOOLS)}
    assert found[False] == {"prompt": [user("?")], "completion": [assistant("4")], "label": False}


def test_prompts_of_rl_carry_tools_and_calls(tmp_path: Path) -> None:
    asked = [user("2 + 2?"), CONVERSATIONAL_ROWS_CALL, {"role": "tool", "content": "4"}]
    rows: list[dict[str, Any]] = [{"prompt": "1 + 1?", "gold": "2"}, {"prompt": asked, "gold": "4", "tools": TOOLS}]
    data = {"p": domain(jsonl(tmp_path / "p.jsonl", rows), "rl_prompt")}
    workspace = workspace_in(tmp_path, minimal("rl", data, template="qwen3", test_fraction=0.0))
    stores = build_all(workspace, ["rl"])
    found = list(open_stream(stores["rl_prompts", ""].directory, "rl_prompts_train"))
    assert found == [{"prompt": [user("1 + 1?")], "gold": 2}, {"prompt": asked, "gold": 4, "tools": json.dumps(TOOLS)}]
    assert stores["rl_tokens_by_domain", "p"].manifest.counts["refused"] == {}
    store = open_stream(stores["rl_tokens", ""].directory, "prompts")
    text = workspace.vocabulary(workspace.family(Rl)).backend.decode(store.record(1, "tokens").tolist(), skip_special_tokens=False)
    assert "# Tools" in text and '{"name": "f", "arguments": {"a": 2}}' in text and text.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(("masks", "kept"), [({}, 1), ({"mask": {"assistant": "train", "document": "train"}}, 2)])
def test_documents_among_chats_are_trained_as_the_mask_says(make: Make, tmp_path: Path, masks: dict[str, Any], kept: int) -> None:
    """A check that took each document for trained stopped right stores of sft."""
    weighed = [{"content": [{"text": "A fox."}], "semantic_loss_weight": [1]}, {"content": [{"text": "A dog."}]}]
    rows = [{"semantic_data_array": turns} for turns in (weighed, [{"content": [{"text": "A cat."}]}])]
    workspace = make(minimal("sft", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "semantic")}, template="chatml", **masks))
    published = build(workspace, "sft_tokens", "a")
    assert published.manifest.counts["kept"] == kept
    assert [refusal.reason for refusal in refusals(published)] == ["nothing_to_train"] * (2 - kept)
