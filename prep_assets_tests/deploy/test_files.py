"""The files of `deploy/` say what their programs take, and agree with each other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config

from prep_assets.extensions.buckets.bucket import checked

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PROGRAMS = {
    "ray": "ray",
    "dagster": "dagster",
    "dagster-webserver": "dagster-webserver",
    "dagster-daemon": "dagster",
    "server": "",
    "mb": "",
}


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


def named_by(value: Any) -> set[str]:
    """The variables that a dagster.yaml takes from the environment."""
    if isinstance(value, dict):
        return {value["env"]} if list(value) == ["env"] else set().union(*map(named_by, value.values()))
    return set()


def instance(tmp_path: Path, *names: str) -> Any:
    """What Dagster makes of a dagster.yaml of some files together."""
    (tmp_path / "dagster.yaml").write_text("".join((DEPLOY / name).read_text("utf-8") for name in names), "utf-8")
    return dagster_instance_config(str(tmp_path))[0]


def test_dagster_takes_the_instance(tmp_path: Path) -> None:
    found = instance(tmp_path, "dagster.yaml")
    assert found["storage"] == {"postgres": {"postgres_db": read("dagster.yaml")["storage"]["postgres"]["postgres_db"]}}
    assert found["concurrency"]["runs"]["max_concurrent_runs"] == 8
    assert found["concurrency"]["pools"]["granularity"] == "run"


def test_dagster_takes_the_instance_whose_runs_are_jobs_on_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = instance(tmp_path, "dagster.yaml", "dagster-on-ray.yaml")["run_launcher"]
    dagster_ray = pytest.importorskip("dagster_ray", reason="Dagster on Ray is in the extra team")
    from dagster._config import process_config, resolve_to_config_type

    assert getattr(dagster_ray, launcher["class"]) is dagster_ray.RayRunLauncher
    monkeypatch.setenv("RAY_DASHBOARD", "http://127.0.0.1:8265")
    made = process_config(resolve_to_config_type(dagster_ray.RayRunLauncher.config_type()), launcher["config"])
    assert made.success
    assert made.value["ray"]["address"] == "http://127.0.0.1:8265"


def test_a_run_on_ray_gets_every_variable_that_an_instance_names() -> None:
    passed = set(read("dagster-on-ray.yaml")["run_launcher"]["config"]["ray"]["env_vars"])
    assert named_by(read("dagster.yaml")) <= passed
    dockerfile = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert set(re.findall(r"\b([A-Z_]+)=/", dockerfile)) <= passed


def parsed(compose: Any) -> Any:
    """A compose file as the specification reads it. Anchors and merges are YAML's own."""
    compose_spec = pytest.importorskip("compose_spec", reason="the specification of Compose is in the extra test")
    return compose_spec.PyCompose.from_yaml(yaml.safe_dump(compose)).to_dict()


def test_the_specification_of_compose_takes_the_services() -> None:
    assert set(parsed(read("compose.yaml"))["services"]) == set(read("compose.yaml")["services"])


def test_services_name_what_there_is() -> None:
    said = read("compose.yaml")
    services = said["services"]
    assert set(services) == {"postgres", "objects", "bucket", "ray-head", "ray-worker", "code", "webserver", "daemon"}
    for name, service in services.items():
        assert "image" in service or "build" in service, name
        assert set(service.get("depends_on", ())) <= set(services)
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source.startswith("./") or source in said["volumes"]
        if "command" in service:
            assert service["command"].split()[0] in PROGRAMS
    build = services["ray-head"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_services_have_every_variable_that_an_instance_names() -> None:
    environment = set(read("compose.yaml")["services"]["code"]["environment"])
    dockerfile = set(re.findall(r"\b([A-Z_]+)=/", (DEPLOY / "Dockerfile").read_text("utf-8")))
    assert named_by(read("dagster.yaml")) | named_by(read("dagster-on-ray.yaml")["run_launcher"]["config"]) <= environment | dockerfile


def test_stores_go_to_the_bucket_that_is_made() -> None:
    services = read("compose.yaml")["services"]
    address = services["code"]["environment"]["PREP_ASSETS_STORE_DIR"]
    assert checked(address) == address
    made = services["bucket"]["command"].split()[-1]
    assert address.startswith(f"s3://{made.rpartition('/')[2]}/")
    alias = made.partition("/")[0]
    server = services["code"]["environment"]["AWS_ENDPOINT_URL"].partition("://")[2]
    assert services["bucket"]["environment"][f"MC_HOST_{alias}"].endswith(f"@{server}")
    assert services["code"]["depends_on"]["bucket"] == {"condition": "service_completed_successfully"}


def test_the_server_of_the_code_is_where_the_workspace_says() -> None:
    [server] = (each["grpc_server"] for each in read("workspace.yaml")["load_from"])
    assert server["host"] in read("compose.yaml")["services"]
    assert f"--port {server['port']}" in read("compose.yaml")["services"]["code"]["command"]


def test_pods_of_both_charts_share_image_claim_and_secret() -> None:
    dagster, ray = read("kubernetes/dagster.yaml"), read("kubernetes/ray.yaml")
    [code] = dagster["dagster-user-deployments"]["deployments"]
    assert code["image"] == ray["image"] == dagster["dagsterWebserver"]["image"] == dagster["dagsterDaemon"]["image"]
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for pod in (code, ray["head"], ray["worker"])
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert claims == ["prep-assets"] * 3
    secrets = {code["envSecrets"][0]["name"], *(pod["envFrom"][0]["secretRef"]["name"] for pod in (ray["head"], ray["worker"]))}
    assert secrets == {"prep-assets"}
    ours = {each["name"]: each["value"] for each in code["env"]}
    assert {each["name"]: each["value"] for each in ray["common"]["containerEnv"]}.items() <= ours.items()


def test_instances_of_compose_and_kubernetes_are_the_same() -> None:
    chart, own = read("kubernetes/dagster.yaml"), read("dagster.yaml")
    assert chart["postgresql"]["postgresqlScheme"] == own["storage"]["postgres"]["postgres_db"]["scheme"]
    assert chart["concurrency"]["runs"]["maxConcurrentRuns"] == own["concurrency"]["runs"]["max_concurrent_runs"]
    pools = chart["concurrency"]["pools"]
    assert {"default_limit": pools["defaultLimit"], "granularity": pools["granularity"]} == own["concurrency"]["pools"]
    retries = chart["dagsterDaemon"]["runRetries"]
    again = {"max_retries": retries["maxRetries"], "retry_on_asset_or_op_failure": retries["retryOnAssetOrOpFailure"]}
    assert {"enabled": retries["enabled"], **again} == own["run_retries"]


def test_launchers_of_compose_and_kubernetes_are_the_same() -> None:
    on_ray = read("dagster-on-ray.yaml")["run_launcher"]
    custom = read("kubernetes/dagster.yaml")["runLauncher"]["config"]["customRunLauncher"]
    assert (custom["module"], custom["class"]) == (on_ray["module"], on_ray["class"])
    assert custom["config"]["ray"]["num_cpus"] == on_ray["config"]["ray"]["num_cpus"] == 0
    assert custom["config"]["ray"]["env_vars"] == ["DAGSTER_PG_PASSWORD"]  # as the chart's own dagster.yaml calls it
