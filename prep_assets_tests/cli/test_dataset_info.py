"""`prep-assets dataset-info`: what it prints is a configuration that reads the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.config.models import Domain
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with

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
    assert files[1]["tagged"]["max_items"] == 5
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
        ({"file_name": "a.json", "formatting": "sharegpt", "columns": {"videos": "v"}}, "videos have no place in a token store"),
        ({"file_name": "a.json", "formatting": "sharegpt", "tags": {"rol_tag": "r"}}, "no tag 'rol_tag'; did you mean 'role_tag'"),
    ],
)
def test_what_cannot_be_read_says_why(run: Any, tmp_path: Path, entry: Any, says: str) -> None:
    result = run("dataset-info", written(tmp_path, {"mine": entry}))
    assert result.exit_code == 1 and says in " ".join(result.stderr.split())


def test_a_name_or_a_file_that_is_not_there(run: Any, tmp_path: Path) -> None:
    assert "did you mean 'pairs'" in " ".join(run("dataset-info", written(tmp_path, ENTRIES), "pair").stderr.split())
    assert "no file" in run("dataset-info", tmp_path / "none.json").stderr
