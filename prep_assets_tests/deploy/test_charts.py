"""Values for Kubernetes are what the charts of Dagster and KubeRay take. `PREP_ASSETS_CHARTS` names a folder with both, unpacked: ``dagster`` and
``ray-cluster``; they are on no registry that tests may ask."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets_tests.deploy.test_files import read

FREE = re.compile(r"(containerEnv|env|envFrom|envSecrets|resources|volumes|volumeMounts|rayStartParams|customRunLauncher|deployments)$")
"""What stands below is Kubernetes' or Ray's, and no chart lists it."""


def chart(name: str) -> Path:
    folder = Path(os.environ.get("PREP_ASSETS_CHARTS", ""), name)
    if "PREP_ASSETS_CHARTS" not in os.environ or not (folder / "values.yaml").is_file():
        pytest.skip("charts for Kubernetes: PREP_ASSETS_CHARTS names no folder that has them")
    return folder


def over(default: Any, ours: Any) -> Any:
    """Values over those of a chart, as Helm lays them."""
    if not isinstance(default, Mapping) or not isinstance(ours, Mapping):
        return ours
    return {**default, **{key: over(default.get(key), value) for key, value in ours.items()}}


def places(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The paths of all keys that a chart has to know."""
    for key, value in values.items():
        yield (place := f"{above}{key}")
        if isinstance(value, Mapping) and not FREE.search(place):
            yield from places(value, f"{place}.")


def taken(folder: Path) -> set[str]:
    """Paths that its values have or its templates ask for."""
    defaults = set(places(yaml.safe_load((folder / "values.yaml").read_text("utf-8"))))
    asked = set()
    for path in folder.rglob("templates/**/*.*"):
        template = path.read_text("utf-8")
        asked |= {match.rstrip(".") for match in re.findall(r"\.Values\.([A-Za-z0-9_.]+)", template)}
        for name, place in re.findall(r"\$(\w+) := \.Values\.([A-Za-z0-9_.]+)", template):
            asked |= {f"{place}.{key}" for key in re.findall(rf"\${name}(?:\.| \")(\w+)", template)}
    return defaults | asked


def faults(folder: Path, values: Mapping[str, Any]) -> list[str]:
    """What a chart does not take: keys that it does not know, and what its schema refuses where it has one."""
    jsonschema = pytest.importorskip("jsonschema", reason="Dagster's chart has a JSON schema")
    known = taken(folder)
    found = [place for place in places(values) if not any(place == each or each.startswith(f"{place}.") for each in known)]
    schema = folder / "values.schema.json"
    if schema.is_file():
        whole = over(yaml.safe_load((folder / "values.yaml").read_text("utf-8")), values)
        found += [error.message for error in jsonschema.Draft202012Validator(json.loads(schema.read_text("utf-8"))).iter_errors(whole)]
    return found


@pytest.mark.parametrize(
    ("values", "name", "wrong"),
    [
        ("dagster.yaml", "dagster", {"dagsterDaemon": {"runRetry": {}}}),
        ("dagster.yaml", "dagster", {"runLauncher": {"type": "RayRunLauncher"}}),
        ("dagster.yaml", "dagster", {"dagster-user-deployments": {"deployments": [{"name": "prep-assets"}]}}),
        ("ray.yaml", "ray-cluster", {"worker": {"minReplica": 1}}),
        ("ray.yaml", "ray-cluster", {"heads": {}}),
    ],
)
def test_charts_take_the_values_and_refuse_what_is_misspelt(values: str, name: str, wrong: dict[str, Any]) -> None:
    folder, said = chart(name), read(f"kubernetes/{values}")
    assert faults(folder, said) == []
    assert faults(folder, over(said, wrong))


def test_the_password_of_the_charts_postgres_is_the_one_that_runs_on_ray_get() -> None:
    templates = "".join(path.read_text("utf-8") for path in (chart("dagster") / "templates").rglob("*.tpl"))
    [launcher] = read("kubernetes/dagster.yaml")["runLauncher"]["config"].values()
    named = set(re.findall(r"password:\s*\n\s*env: (\w+)", templates))
    assert named == set(launcher["config"]["ray"]["env_vars"])
