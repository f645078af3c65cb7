"""`prep-assets schemas`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.config.family import Domain
from prep_assets.errors import Refused
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with, schemas
from prep_assets_tests.corpus.sessions import SESSIONS, claude, trajectory
from prep_assets_tests.graph.workspaces import build, jsonl, minimal, workspace_in


def test_lists_every_schema(run: Any) -> None:
    words = run("schemas").stdout.split()
    for name, found in schemas().items():
        assert {name, *found.aliases} <= set(words)


@pytest.mark.parametrize("name", ["alpaca", "gsm8k", "messages", "moss", "hh", "semantic", "sections", "text"])
def test_shows_options_and_a_row_that_it_reads(run: Any, name: str) -> None:
    shown = run("schemas", name).stdout
    options, _, row = shown.partition("a row that it reads:")
    assert set(schemas()[name].options) <= set(options.split())
    apply(convert_with(name), json.loads(row))


def test_an_alias_shows_its_schema(run: Any) -> None:
    assert run("schemas", "MOSSMultiTurnHandler").stdout == run("schemas", "moss").stdout


# -- `prep-assets dataset-info`: what it prints is a configuration that reads the rows ---------------------------------------------------


ENTRIES: dict[str, Any] = {
    "alpaca_en": {"file_name": "alpaca_en.json"},
    "renamed": {"file_name": "r.json", "columns": {"prompt": "q", "query": "more", "response": "a", "history": "past", "system": "s"}},
    "glaive": {
        "hf_hub_url": "llamafactory/glaive_toolcall_en",
        "formatting": "sharegpt",
        "columns": {"messages": "conversations", "tools": "tools"},
    },
    "tagged": {
        "file_name": "t.json",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"},
        "num_samples": 5,
    },
    "openai": {"file_name": "o.json", "formatting": "openai"},
    "heard": {"file_name": "h.json", "formatting": "openai", "columns": {"messages": "messages", "audios": "sounds", "images": "images"}},
    "dpo_en": {
        "file_name": "dpo_en.json",
        "ranking": True,
        "formatting": "sharegpt",
        "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"},
    },
    "pairs": {"file_name": "p.json", "ranking": True, "columns": {"chosen": "good", "rejected": "bad"}},
}
CHAT = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]
MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
ROWS: dict[str, dict[str, Any]] = {
    "alpaca_en": {"instruction": "Hi", "input": "", "output": "Hello!"},
    "renamed": {"q": "Hi", "more": "there", "a": "Hello!", "past": [["a", "b"]], "s": "Be brief."},
    "glaive": {"conversations": CHAT, "tools": "[]"},
    "tagged": {"messages": MESSAGES},
    "openai": {"messages": MESSAGES},
    "heard": {"messages": [{"role": "user", "content": "<audio>What?<image>"}, MESSAGES[1]], "sounds": ["1.mp3"], "images": ["1.jpg"]},
    "dpo_en": {"conversations": CHAT[:1], "chosen": CHAT[1], "rejected": {"from": "gpt", "value": "No."}},
    "pairs": {"instruction": "Hi", "input": "", "good": "Hello!", "bad": "No."},
}


def written(folder: Path, entries: Any) -> Path:
    (folder / "dataset_info.json").write_text(json.dumps(entries), "utf-8")
    return folder / "dataset_info.json"


def test_what_is_printed_reads_the_rows(run: Any, tmp_path: Path) -> None:
    shown = run("dataset-info", written(tmp_path, ENTRIES)).stdout
    files = [yaml.safe_load("domains:" + part)["domains"] for part in shown.split("domains:")[1:]]
    assert [sorted(each) for each in files] == [["dpo_en", "pairs"], sorted({*ENTRIES} - {"dpo_en", "pairs"})]
    for name, entry in {**files[0], **files[1]}.items():
        domain = Domain.model_validate(entry)
        example = apply(convert_with(domain.schema_name, domain.options), ROWS[name])
        said = [turn.text for turn in (example.chosen if name in files[0] else example.turns)]  # type: ignore[union-attr]
        assert said[-1] == "Hello!"
        if name == "heard":
            assert [(region.kind, region.text) for region in example.turns[0].regions] == [
                ("audio", "1.mp3"),
                ("text", "What?"),
                ("image", "1.jpg"),
            ]  # type: ignore[union-attr]
            with pytest.raises(Refused, match="audio_count"):
                apply(convert_with("sharegpt", domain.options), {**ROWS[name], "sounds": []})
    assert files[1]["tagged"]["max_items"] == 5 and "image_dir is the folder of images, audio and video" in shown
    assert "put the commit of the data set behind the @" in shown


def test_names_choose(run: Any, tmp_path: Path) -> None:
    shown = run("dataset-info", written(tmp_path, ENTRIES), "pairs").stdout
    assert "pairs:" in shown and "dpo_en" not in shown


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"script_url": "belle"}, "is loaded by a script"),
        ({"ms_hub_url": "a/b"}, "has neither file_name nor hf_hub_url"),
        ({"file_name": "a.json", "column": {}}, "mine.column: Extra inputs are not permitted"),
        ({"file_name": "a.json", "columns": {"promt": "q"}}, "no column 'promt'; did you mean 'prompt'"),
        ({"file_name": "a.json", "tags": {"role_tag": "role"}}, "tags belong to formatting sharegpt"),
        ({"file_name": "a.json", "formatting": "sharegpt", "tags": {"rol_tag": "r"}}, "no tag 'rol_tag'; did you mean 'role_tag'"),
    ],
)
def test_what_cannot_be_read_says_why(run: Any, tmp_path: Path, entry: Any, says: str) -> None:
    result = run("dataset-info", written(tmp_path, {"mine": entry}))
    assert result.exit_code == 1 and says in " ".join(result.stderr.split())


def test_a_name_or_a_file_that_is_not_there(run: Any, tmp_path: Path) -> None:
    assert "did you mean 'pairs'" in " ".join(run("dataset-info", written(tmp_path, ENTRIES), "pair").stderr.split())


# -- `prep-assets sniff` -----------------------------------------------------------------------------------------------------------------


SAMPLES = Path(__file__).resolve().parents[2] / "configs" / "samples"


def parts(output: str) -> tuple[list[list[str]], list[str]]:
    """The fitting schemas, a list of words each; and the first word of the others."""
    fits, _, others = output.partition("does not fit")
    rows = [line.split() for line in fits.splitlines() if " of " in line]
    return rows, [line.split()[0] for line in others.splitlines() if line.split()]


@pytest.mark.parametrize(
    "file, schema",
    [("gsm8k.jsonl", "gsm8k"), ("alpaca.json", "alpaca"), ("dolly.jsonl", "dolly"), ("hh.jsonl.gz", "hh"), ("notes.txt", "text")],
)
def test_the_sample_files_are_recognized(run: Any, file: str, schema: str) -> None:
    result = run("sniff", SAMPLES / file, "-n", 20)
    fitting, others = parts(result.stdout)
    assert result.exit_code == 0
    assert fitting[[row[0] for row in fitting].index(schema)][2:5] == ["20", "of", "20"]
    assert "sharegpt" not in others
    assert "schema: " in result.stdout.splitlines()[-1]


def test_a_schema_that_fits_some_rows_says_why_not_all(run: Any, tmp_path: Path) -> None:
    rows = [{"text": "one"}, {"text": "two"}, {"text": 3}]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    fitting, _ = parts(run("sniff", tmp_path / "docs.jsonl").stdout)
    row = next(row for row in fitting if row[0] == "text")
    assert row[2:5] == ["2", "of", "3"] and len(row) > 5


def test_nothing_fits(run: Any, tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text('{"x": 1}\n{"x": 2}\n{"x"\n', "utf-8")
    result = run("sniff", tmp_path / "odd.jsonl")
    assert result.exit_code == 1
    assert "no schema fits" in result.stdout
    assert "schemas fit no record; the closest: messages (missing_field: needs 'messages'; it has 'x')" in result.stdout
    assert "1 row could not be read; the first: odd.jsonl:3 invalid_json" in result.stdout


def test_no_readable_record(run: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("[1]\n[2]\n", "utf-8")
    result = run("sniff", tmp_path / "bad.jsonl")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no readable record, 2 unreadable rows" in result.stderr


def test_the_last_line_is_a_whole_domain(run: Any, tmp_path: Path) -> None:
    """It is pasted into a configuration, and builds."""
    chat = [{"role": "user", "content": "q", "the mood": "good"}, {"role": "assistant", "content": "a"}]
    file = jsonl(tmp_path / "chats, mine.jsonl", [{"messages": chat, "id": number, "stars: all": 5} for number in range(3)])
    line = run("sniff", file).stdout.splitlines()[-1]
    entry = yaml.safe_load(line)["a_name"]
    assert entry == {"files": [str(file)], "schema": "messages", "ignore": ["stars: all", "messages.the mood"]}
    workspace = workspace_in(tmp_path / "here", minimal("sft", {"a": entry}, preprocessing={"deduplicate": False}))
    build(workspace, "sft_raw", "a")
    passed_over = build(workspace, "sft_tokens", "a").manifest.counts["fields_passed_over"]
    assert passed_over == {"a": {"id": 3, "messages.the mood": 3, "stars: all": 3}}


def test_schemas_that_need_other_fields_are_counted_and_listed_when_asked(run: Any) -> None:
    everything, shown = (run("sniff", SAMPLES / "gsm8k.jsonl", "-n", 20, *more).stdout for more in (["--all"], []))
    _, others = parts(everything)
    _, near = parts(shown)
    assert "schemas fit no record. --all lists the reasons" in shown
    assert len([line for line in everything.splitlines() if "missing_field: needs " in line]) > 50
    assert "sharegpt" in others and "sharegpt" not in near


def test_the_domain_names_the_file_as_its_configuration_does(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("configs", "data"):
        (tmp_path / folder).mkdir()
    jsonl(tmp_path / "data" / "docs.jsonl", [{"text": "one"}])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", "configs")
    named = [run("sniff", file).stdout.splitlines()[-1] for file in ("data/docs.jsonl", tmp_path / "data" / "docs.jsonl")]
    assert [yaml.safe_load(line)["a_name"]["files"] for line in named] == [["../data/docs.jsonl"], [str(tmp_path / "data" / "docs.jsonl")]]
    monkeypatch.delenv("PREP_ASSETS_CONFIG_DIR")
    assert "files: [data/docs.jsonl]" in run("sniff", "data/docs.jsonl").stdout, "a configuration elsewhere"


CALL = {"role": "Assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
CHAT = [{"role": "User", "content": "q"}, {"role": "Assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("rows", "domain", "left_out"),
    [
        (
            [{"question": "q", "response": "a", "source": "s", "score": 0.9}],
            {"schema": "alpaca", "options": {"prompt_key": "question", "response_key": "response"}, "ignore": ["score"]},
            ["left out: score, 1 of 1 rows, e.g. 0.9"],
        ),
        ([{"Question": "q", "Answer": "a"}], {"schema": "alpaca", "options": {"prompt_key": "Question", "response_key": "Answer"}}, []),
        (
            [{"data_source": "d", "prompt": [{"role": "user", "content": "q"}], "reward_model": {"style": "rule", "ground_truth": "7"}}],
            {"schema": "rl_prompt", "options": {"gold_key": "reward_model.ground_truth"}, "ignore": ["data_source", "reward_model.style"]},
            ["left out: data_source, 1 of 1 rows, e.g. 'd'"],
        ),
        ([{"messages": CHAT}], {"schema": "messages", "options": {"roles": {"Assistant": "assistant", "User": "user"}}}, []),
        (
            [{"messages": [CHAT[0], CALL, {"role": "observation", "content": "o"}, CHAT[1]]}],
            {"schema": "messages", "options": {"roles": {"Assistant": "assistant", "User": "user", "observation": "tool"}}},
            [],
        ),
        (
            [{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "context": "c"}],
            {"schema": "messages", "ignore": ["context"]},
            ["left out: context, 1 of 1 rows, e.g. 'c'"],
        ),
        ([{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}], {"schema": "sharegpt"}, []),
        (
            [{"problem": "q", "solution": "long", "answer": "7"}],
            {"schema": "rl_prompt", "options": {"prompt_key": "problem", "gold_key": "answer"}, "ignore": ["solution"]},
            ["left out: solution, 1 of 1 rows, e.g. 'long'"],
        ),
        (
            [{"problem": "q", "solution": "long", "answer": "a"}],
            {"schema": "alpaca", "options": {"prompt_key": "problem", "response_key": "solution"}, "ignore": ["answer"]},
            [],
        ),
        ([{"input": "q", "target": "a"}], {"schema": "alpaca", "options": {"prompt_key": "input", "response_key": "target"}}, []),
        (
            [{"Dialogue": [{"speaker": "customer", "line": "q"}, {"speaker": "agent", "line": "a"}]}],
            {
                "schema": "sharegpt",
                "options": {
                    "messages_key": "Dialogue",
                    "role_tag": "speaker",
                    "content_tag": "line",
                    "user_tag": "customer",
                    "assistant_tag": "agent",
                },
            },
            [],
        ),
    ],
)
def test_options_are_proposed(run: Any, tmp_path: Path, rows: list[dict[str, Any]], domain: dict[str, Any], left_out: list[str]) -> None:
    file = jsonl(tmp_path / "mine.jsonl", rows)
    shown = run("sniff", file).stdout.splitlines()
    assert yaml.safe_load(shown[-1])["a_name"] == {"files": [str(file)], **domain}
    assert [line for line in shown if line.startswith("left out: ")][: len(left_out)] == left_out


def test_columns_of_a_table_whose_names_say_nothing_are_offered(run: Any, tmp_path: Path) -> None:
    (tmp_path / "faq.csv").write_text("Frage,Antwort,Rang\nWie hoch?,Zehn Meter.,1\nWie breit?,Zwei Meter.,2\n", "utf-8")
    result = run("sniff", tmp_path / "faq.csv")
    assert result.exit_code == 1 and "If 'Frage' is the question and 'Antwort' the answer:\n" in result.stdout
    domain = yaml.safe_load(result.stdout.splitlines()[-1])["a_name"]
    assert (domain["schema"], domain["options"]) == ("alpaca", {"prompt_key": "Frage", "response_key": "Antwort"})


def test_a_field_that_decides_is_never_offered_to_be_ignored(run: Any, tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "train_hint": 1}]
    file = jsonl(tmp_path / "mine.jsonl", [{"messages": chat, "system_note": "s", "mood": "good"}])
    shown = run("sniff", file).stdout
    domain = yaml.safe_load(shown.splitlines()[-1])["a_name"]
    assert domain["ignore"] == ["mood"]
    assert "no schema reads system_note, messages.train_hint, which decides what is trained or asked" in shown


def test_a_folder_of_sessions_is_read_a_file_a_row(run: Any, tmp_path: Path) -> None:
    (folder := tmp_path / "sessions").mkdir()
    for name, make in SESSIONS.items():
        jsonl(folder / f"{name}.jsonl", make())
    jsonl(folder / "cut.jsonl", claude()[:-1])
    result = run("sniff", folder)
    assert result.exit_code == 0 and "agent_session" in result.stdout and "4 of 5" in result.stdout and "open_end" in result.stdout
    assert yaml.safe_load(result.stdout.splitlines()[-1])["a_name"] == {"files": [str(folder)], "schema": "agent_session", "txt": "file"}
    (tmp_path / "run.json").write_text(json.dumps(trajectory()), "utf-8")
    assert "schema: atif}" in run("sniff", tmp_path / "run.json").stdout


MESSAGES = "chat,role,content\n1,user,Hi\n1,assistant,Hello!\n2,user,Bye\n2,assistant,See you.\n"


@pytest.mark.parametrize(
    ("roles", "says"), [(("user", "assistant"), True), (("Human", "GPT"), True), (("user", "user"), False), (("a", "b"), False)]
)
def test_a_table_with_one_message_a_row_is_named(run: Any, tmp_path: Path, roles: tuple[str, str], says: bool) -> None:
    """Each message was proposed as a document of its own, and the column of roles to be ignored."""
    (tmp_path / "chats.csv").write_text(MESSAGES.replace("user", roles[0]).replace("assistant", roles[1]), "utf-8")
    result = run("sniff", tmp_path / "chats.csv")
    assert ("whose column 'role' says who speaks" in result.stdout, "a_name:" in result.stdout, result.exit_code) == (
        says,
        not says,
        int(says),
    )


@pytest.mark.parametrize("pattern", ["", "/*", "/**"])
def test_files_of_a_folder_that_no_format_reads_are_named(run: Any, tmp_path: Path, pattern: str) -> None:
    for name in ("a.md", "b.txt", "c.png"):
        (tmp_path / name).write_text("One.\n", "utf-8")
    shown = run("sniff", f"{tmp_path}{pattern}").stdout
    assert f"1 file of {tmp_path}{pattern} not read, as no format has the suffix: a.md" in shown
