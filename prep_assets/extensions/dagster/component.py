"""`type: prep_assets.TrainingData`: one family of assets in a Dagster project of the user's own."""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg
import yaml
from dagster.components.scaffold.scaffold import Scaffolder, ScaffoldRequest, scaffold_with
from pydantic import BaseModel, Field

from prep_assets.config.loading import FILE as TOMBSTONES
from prep_assets.config.loading import PACKAGE, located, yaml_values
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError, require_known
from prep_assets.extensions.dagster.definitions import definitions
from prep_assets.extensions.dagster.io_manager import StoreIOManager
from prep_assets.extensions.dagster.site import Site, WorkspaceResource
from prep_assets.extensions.exports.registry import exports
from prep_assets.stores.manifest import digest
from prep_assets.stores.remote import local_root

if TYPE_CHECKING:
    Family = str
else:
    Family = Literal[tuple(FAMILIES)]
STARTERS = {"pretrain": "docs", "sft": "gsm8k", "preference": "hh", "rl": "gsm8k"}
"""Family → the shipped domain that a scaffolded component starts with."""


class ScaffoldParams(BaseModel):
    """What `dg scaffold defs` asks for."""

    family: str = Field("sft", description=f"One of {', '.join(STARTERS)}.")


class TrainingDataScaffolder(Scaffolder[ScaffoldParams]):
    """Writes `defs.yaml` and a configuration that works at once, with a copy of a shipped sample and its tokenizer."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        """The options of the command."""
        return ScaffoldParams

    def scaffold(self, request: ScaffoldRequest[ScaffoldParams]) -> None:
        """Write the files into the new folder; all paths are relative to it.

        Raises:
            ConfigError: an unknown family.
        """
        family, folder, shipped = request.params.family, request.target_path, _shipped()
        require_known("no sample of family", family, STARTERS)
        starter = STARTERS[family]
        config = yaml.safe_load((shipped / f"{family}.yaml").read_text("utf-8"))
        sample = config["domains"][starter]
        for file in sample["files"]:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(shipped / file, folder / file)
        shutil.copytree(shipped / config["tokenizer"], folder / "tokenizer", dirs_exist_ok=True)
        options = {
            "tokenizer": "tokenizer",
            **({"packing": {"row_len": 1024}} if family == "sft" else {}),
            "domains": {starter: sample},
        }
        (folder / f"{family}.yaml").write_text(yaml.safe_dump(options, sort_keys=False, allow_unicode=True), "utf-8")
        content = {"type": request.type_name, "attributes": {"family": family, "config": f"{family}.yaml", "store_dir": "data/stores"}}
        (folder / "defs.yaml").write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")


@scaffold_with(TrainingDataScaffolder)
class TrainingData(dg.Component, dg.Model, dg.Resolvable):
    """Assets of one family of training data: pinned sources, tokens with a proven loss mask, packed rows; with checks, sensors and a schedule."""

    family: Family = Field(description=f"One of {', '.join(FAMILIES)}.")
    config: str | dict[str, Any] = Field(
        description="The family's configuration: the path of a YAML file, relative to the folder of defs.yaml, or its keys right here."
    )
    store_dir: str = Field(
        default="data/stores",
        description="Folder of the stores, relative to the root of the project, or the address of a bucket: s3://bucket/prefix. A StoreIOManager with "
        "the resource key <prefix>_<family>_stores publishes them there and opens them.",
    )
    asset_key_prefix: list[str] = Field(default=[], description="Put before every asset key, e.g. [llm, data].")
    upstream: dict[str, list[str]] = Field(
        default={}, description="Domain → key of an asset of the project that writes its source files: the raw asset depends on it."
    )
    group: str = Field(default="", description="Group of all assets; empty: the family.")
    owners: list[str] = Field(default=[], description="Owners of all assets, e.g. [team:data].")
    tags: dict[str, str] = Field(default={}, description="Tags of all assets.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of the family.

        Raises:
            ConfigError: the file does not exist, or `upstream` names an unknown domain.
        """
        root = Path(context.project_root)
        stores = located(self.store_dir, root)
        configs = self._configs(Path(context.path), local_root(stores))
        site = Site(
            workspace=WorkspaceResource(configs=str(configs)),
            stores=StoreIOManager(store_dir=str(stores)),
            resource=f"workspace_{digest([self.family, str(configs), str(stores)])[:10]}",
            io_manager_key="_".join([*self.asset_key_prefix, self.family, "stores"]),
            prefix=tuple(self.asset_key_prefix),
            group=self.group,
            owners=tuple(self.owners),
            tags=self.tags,
            upstream={domain: (dg.AssetKey(key),) for domain, key in self.upstream.items()},
        )
        known = site.open().family_domains(self.family)
        unknown = [domain for domain in self.upstream if known is not None and domain not in known]
        if unknown:
            raise ConfigError(f"upstream: no domain {unknown[0]!r} in {self.family}. There are: {', '.join(known or ())}")
        return definitions(site, only=(self.family,), whole_project=False)

    def _configs(self, location: Path, stores: Path) -> Path:
        """A folder with the configuration as ``<family>.yaml``. Its relative paths refer to the component's own files."""
        folder = location if location.is_dir() else location.parent
        if isinstance(self.config, str):
            path = (folder / self.config).resolve()
            if not path.is_file():
                raise ConfigError(f"config: there is no file {path}")
            if path.name == f"{self.family}.yaml":
                return path.parent
            values, base = yaml_values(path.read_text("utf-8"), path), path.parent
        else:
            values, base = self.config, folder.resolve()
        return _written(values, base, self.family, stores)


def _written(values: Mapping[str, Any], base: Path, family: str, stores: Path) -> Path:
    """Write inline keys to a file in the folder of stores, with absolute paths; return its folder."""
    domains, benchmarks, exported = (values.get(key) for key in ("domains", "decontaminate", "exports"))
    absolute = _absolute(values, base, "tokenizer", "template", "training_template")
    if isinstance(domains, Mapping):
        absolute["domains"] = {name: _absolute(domain, base, "tokenized_by") for name, domain in domains.items()}
    if isinstance(exported, Mapping):
        absolute["exports"] = {name: _export(entry, base) for name, entry in exported.items()}
    if isinstance(benchmarks, Mapping):
        absolute["decontaminate"] = _absolute(benchmarks, base)
    folder = stores / ".configs" / digest(json.loads(json.dumps(absolute, default=str)))[:10]
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # tombstones outlive a change of keys, which changes the folder
        (folder / TOMBSTONES).symlink_to(f"../{TOMBSTONES}")
    path = folder / f"{family}.yaml"
    text = yaml.safe_dump(absolute, sort_keys=False, allow_unicode=True)
    if not path.is_file() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
    return folder


def _absolute(values: Any, base: Path, *keys: str) -> Any:
    """Make paths of a configuration absolute: files, the folder of images, and existing paths under `keys`."""
    if not isinstance(values, Mapping):
        return values
    paths = {key: base / values[key] for key in ("image_dir", *keys) if isinstance(values.get(key), str)}
    resolved = {key: str(path.resolve()) for key, path in paths.items() if key == "image_dir" or path.exists()}
    lists = {key: values[key] for key in ("files", "test_files") if isinstance(values.get(key), list | tuple)}
    files = {key: [file if "://" in str(file) else str(base / str(file)) for file in listed] for key, listed in lists.items()}
    return {**values, **resolved, **files}


def _export(entry: Any, base: Path) -> Any:
    options = entry.get("options") if isinstance(entry, Mapping) else None
    if not isinstance(options, Mapping) or entry.get("to") not in exports():
        return entry
    return {**entry, "options": exports()[entry["to"]].below(base, options)}


def _shipped() -> Path:
    """The folder of the shipped configuration, in the installed package or in the checkout."""
    installed = PACKAGE / "_configs"
    return installed if installed.is_dir() else PACKAGE.parent / "configs"
