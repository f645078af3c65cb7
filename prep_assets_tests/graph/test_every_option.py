"""No option is accepted and ignored: each field of each family's configuration changes what is built from a fitting input, or what is done.

An option that is on or off, or one of some words, is shown by another value. Every other has an entry in `SHOWN`, and so has one that means something
beside other options only. What means nothing beside other options is refused: `config/test_meaning.py`.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from prep_assets.config.family import Domain, Export
from prep_assets.config.models import FAMILIES
from prep_assets.errors import PrepAssetsError
from prep_assets.graph.graph import assets_of
from prep_assets_tests.graph.walked_inputs import SCHEMAS, write_inputs
from prep_assets_tests.graph.walked_options import SHOWN, By, Doing, Elsewhere
from prep_assets_tests.graph.workspaces import workspace_in


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with every input; a module with schemas of the user's own is importable from it."""
    folder = tmp_path_factory.mktemp("walk")
    write_inputs(folder)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("walk_schemas", None)


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every field by its path, as a configuration writes it; ``*`` stands for a name."""
    for name, each in model.model_fields.items():
        inner = {"domains": Domain, "exports": Export}.get(name) if not prefix else None
        if isinstance(each.default, BaseModel):
            yield from fields(type(each.default), f"{prefix}{name}.")
        elif inner is not None:
            yield from ([(name, each)] if name == "exports" else [])
            yield from fields(inner, f"{name}.*.")
        else:
            yield prefix + (each.alias or name), each


def another(each: FieldInfo) -> By | None:
    """A value that an option has not, where its type tells the values that it may have."""
    if each.annotation is bool:
        return By(not each.default)
    words = [word for word in get_args(each.annotation) if get_origin(each.annotation) is Literal and word != each.default]
    return By(words[-1]) if words else None


EVERY = {(family, path): SHOWN[family].get(path) or another(each) for family, model in FAMILIES.items() for path, each in fields(model)}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_is_shown(family: str) -> None:
    assert [path for (of, path), shown in EVERY.items() if of == family and shown is None] == [], "each needs an entry in SHOWN"
    assert [path for path in SHOWN[family] if (family, path) not in EVERY] == []


@pytest.mark.parametrize("test", sorted({each.test for shown in SHOWN.values() for each in shown.values() if isinstance(each, Elsewhere)}))
def test_what_is_shown_elsewhere_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (Path(__file__).resolve().parents[2] / file).read_text("utf-8")


# -- building -----------------------------------------------------------------------------------------------------------------------------


def configuration(family: str, files: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """A small configuration with options set by their paths."""
    own = {"files": [f"@{family}.jsonl"], "schema": SCHEMAS[family]}
    found: dict[str, Any] = {"tokenizer": "@tokenizer", "domains": {"a": dict(own)}}
    if family == "rl":
        found |= {"arithmetic": {"n": 20}}
        found["domains"]["groups"] = {"files": ["@groups.jsonl"], "schema": "group"}
    if family == "sft":
        found |= {"packing": {"row_len": 128}}
    if family == "preference":
        found |= {"test_fraction": 0.0}
    for path, value in values.items():
        *above, last = path.replace("domains.*", "domains.a").replace("exports.*", "exports.e").split(".")
        place = found
        for key in above:
            place = place.setdefault(key, {})
        place[last] = copy.deepcopy(value)
    if "b" in found["domains"] and not found["domains"]["b"]:
        read = {key: found["domains"]["a"][key] for key in ("files", "schema")}
        found["domains"]["b"] = {**read, "domain_key": "source"}
    return json.loads(json.dumps(found).replace('"@', f'"{files}/'))  # type: ignore[no-any-return]


Held = tuple[str, Mapping[str, Any], str]
"""Hash of a store's content, counts, hash of its quarantine."""


def outcomes(family: str, folder: Path, values: Mapping[str, Any]) -> Iterator[tuple[str, Held]]:
    """What each store of the family holds, as it is built, what feeds others first."""
    workspace = workspace_in(folder, {family: dict(values)})
    for name, asset in assets_of(workspace).items():
        for partition in asset.partitions(workspace):
            # what a store holds is in question here, not whether its checks hold
            store = asset.build(workspace, partition).propose()
            workspace.place(name, partition).accept(store, {})
            yield f"{name}[{partition}]", (store.manifest.content_hash, store.manifest.counts, store.manifest.quarantine)


CASES = [each for each, shown in EVERY.items() if shown and not isinstance(shown, Elsewhere)]
PLAIN: dict[str, Any] = {}
"""Outcomes that are asked for often: without any option."""


@pytest.mark.parametrize(("family", "path"), CASES, ids=[f"{family}-{path}" for family, path in CASES])
def test_an_option_shows(files: Path, tmp_path: Path, family: str, path: str) -> None:
    shown = EVERY[family, path]
    assert shown and not isinstance(shown, Elsewhere)
    without, with_it = (configuration(family, files, {**shown.beside, **more}) for more in ({}, {path: shown.value}))
    if path == "domains.*.format":
        shutil.copyfile(files / f"{family}.jsonl", files / f"{family}.data")
    if isinstance(shown, Doing):
        before, after = (
            shown.seen(workspace_in(tmp_path / name, {family: values}), family) for name, values in (("0", without), ("1", with_it))
        )
        assert before != after
        return
    if shown.stops:
        with pytest.raises(PrepAssetsError, match=shown.stops):
            list(outcomes(family, tmp_path / "0", without))
        assert list(outcomes(family, tmp_path / "1", with_it))
        return
    key = json.dumps([family, without])
    before = PLAIN.get(key) or dict(outcomes(family, tmp_path / "0", without))
    PLAIN[key] = before
    left = dict(before)
    for name, held in outcomes(family, tmp_path / "1", with_it):  # up to the first store that is another one
        if left.pop(name, None if path == "exports" else held) != held:
            return
    assert left, "no store differs, and none is gone"
