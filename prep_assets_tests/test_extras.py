"""Each extra by itself: a wheel in an empty environment, and what the page on Python promises of it. `make test-extras` runs these."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prep_assets_tests.conftest import ROOT
from prep_assets_tests.wheel import build_wheel

if os.environ.get("PREP_ASSETS_EXTRAS") != "1":
    pytest.skip("make test-extras", allow_module_level=True)

BASE = """
import shutil, subprocess
from pathlib import Path
import prep_assets as pa
shutil.copytree(Path(pa.__file__).parent / "_configs", "configs")
from prep_assets.config.models import Sft
workspace = pa.Workspace("configs", "stores")
pa.build(workspace, "sft_packed")
assert len(pa.load("stores/sft_packed")) > 0
engine = workspace.engines(workspace.family(Sft)).first.name
"""
"""What the base install promises: it reads, renders, tokenizes, packs and stores."""
MISSING = """
import importlib.util
for name in {names!r}:
    assert importlib.util.find_spec(name) is None, name + " is installed, although nobody asked for it"
"""
HEAVY = ("dagster", "torch", "gigatoken", "obstore", "aiohttp")
COMMAND = "subprocess.run(['bin/prep-assets', 'verify', 'sft_packed'], check=True)"
PROVES = {
    "": ("assert 'gigatoken' not in engine", HEAVY),
    "cli": (COMMAND, ("dagster", "torch")),
    "dagster": ("from prep_assets.definitions import defs; assert defs.resolve_asset_graph()", ("torch",)),
    "fast": ("assert 'gigatoken' in engine", ("dagster", "torch")),
    "train": (
        "from prep_assets.training import PackedDataset; assert len(PackedDataset('stores/sft_packed')[0]['input_ids']) == 1024",
        ("dagster",),
    ),
    "http": ("import aiohttp", ("dagster", "torch")),
    "s3": ("from prep_assets.extensions.buckets import bucket", ("dagster", "torch")),
    "images": ("import PIL", ("dagster", "torch")),
    "audio": ("import soundfile", ("dagster", "torch")),
    "video": (
        "import av; from prep_assets.extensions.media.headers import frames_of\n"
        "with av.open('a.mp4', 'w') as file:\n"
        "    stream = file.add_stream('mpeg4', 4); stream.width = stream.height = 32; stream.pix_fmt = 'yuv420p'\n"
        "    for _ in range(8):\n"
        "        file.mux(stream.encode(av.VideoFrame(32, 32, 'yuv420p')))\n"
        "    file.mux(stream.encode())\n"
        "assert frames_of(Path('a.mp4')) == (8, 4.0, 32, 32)",
        ("dagster", "torch"),
    ),
    "quality": (
        "from prep_assets.extensions.quality.steps import configured_steps, quality_steps, tried_on_itself\n"
        "for name, step in quality_steps().items():\n"
        "    [made] = configured_steps({name: {'keep': ['en']} if name == 'language' else {}}, step.takes[0])\n"
        "    assert all(found for _, found in tried_on_itself(made)), name",
        ("dagster", "torch"),
    ),
    "tiktoken": ("import tiktoken", ("dagster", "torch")),
    "sentencepiece": ("import sentencepiece", ("dagster", "torch")),
    "mistral": ("import mistral_common", ("dagster", "torch")),
    "encoders": (
        "from prep_assets.extensions.encoders.names import find; f = find('encoder:gpt-oss', None)\n"
        "chat = [{'role': 'user', 'content': 'Hi'}]; assert f.render(chat, (), {}, True) == f.render_again(chat, (), {}, True)",
        ("dagster",),
    ),
    "openlineage": (
        "from prep_assets.extensions.neighbours.description import describe; from prep_assets.extensions.neighbours.openlineage import event_json\n"
        "import prep_assets.extensions.neighbours.dagster_events; assert 'prepAssets_store' in event_json(describe(workspace, 'sft_packed')[0])",
        ("torch",),
    ),
    "mlflow": (
        "from prep_assets.extensions.neighbours.mlflow import MlflowDataset; import mlflow\n"
        "from prep_assets.extensions.neighbours.description import described; dataset = MlflowDataset(described('stores/sft_packed/current'))\n"
        "source = mlflow.data.dataset_source_registry.get_dataset_source_from_json(dataset.source.to_json(), 'prep_assets')\n"
        "assert source.load().is_dir()",
        ("dagster", "torch"),
    ),
    "wandb": (
        "from prep_assets.extensions.neighbours.wandb import wandb_artifact; from prep_assets.extensions.neighbours.description import described\n"
        "assert wandb_artifact(described('stores/sft_packed/current')).metadata['content_hash']",
        ("dagster", "torch"),
    ),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def pip(environment: Path, *words: str | Path) -> None:
    """Install something there."""
    command = [environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *words]
    subprocess.run(command, check=True)


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment and then the wheel without extras."""
    folder = tmp_path_factory.mktemp("base") / "environment"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip(folder, "--constraint", ROOT / "constraints.txt", wheel)
    return folder


@pytest.mark.parametrize("extra", list(PROVES))
def test_alone_in_an_empty_environment(extra: str, wheel: Path, base: Path, tmp_path: Path) -> None:
    code, absent = PROVES[extra]
    folder = tmp_path / "environment"
    shutil.copytree(base, folder, symlinks=True, copy_function=os.link)
    # its commands name the interpreter of the copy
    pip(folder, "--force-reinstall", "--no-deps", wheel)
    pip(folder, "--constraint", ROOT / "constraints.txt", f"{wheel}[{extra}]" if extra else wheel)
    hidden = ("PYTHONPATH", "PREP_ASSETS_CONFIG_DIR", "PREP_ASSETS_STORE_DIR", "DAGSTER_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"PREP_ASSETS_CONFIG_DIR": str(folder / "configs"), "PREP_ASSETS_STORE_DIR": str(folder / "stores")}
    said = subprocess.run(
        [folder / "bin" / "python", "-c", BASE + code + MISSING.format(names=absent)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("limits", [(), ("--constraint", "constraints.txt")], ids=["newest", "constraints"])
def test_every_version_of_python_has_wheels_of_all_that_is_needed(version: str, limits: tuple[str, ...], resolver: Path) -> None:
    """uv reads markers as that version does; pip's ``--python-version`` reads them as the one that runs."""
    asked = ("--python-version", version, "--python-platform", "linux", "--only-binary", ":all:")
    command = [resolver, "pip", "compile", "pyproject.toml", "--extra", "all", "--quiet", *asked, *limits]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert ("backports-zstd" in said.stdout) == (version != "3.14") and "\ntransformers==5." in said.stdout


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """uv, in an environment of its own."""
    folder = tmp_path_factory.mktemp("uv") / "environment"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip(folder, "uv")
    return folder / "bin" / "uv"
