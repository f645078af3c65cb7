"""The Hugging Face Hub: dataset cards, Croissant, and releases."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from prep_assets.config.loading import read_yaml
from prep_assets.errors import ConfigError, SourceUnavailable, StoreError, error_text
from prep_assets.extensions.exports.registry import write_whole
from prep_assets.extensions.neighbours.description import Column, Description, Kind, Source, Table, describe
from prep_assets.extensions.neighbours.recorded import manifest_in
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import MANIFEST, Manifest, payload_faults
from prep_assets.stores.verification import BLOCK, WrittenFile, write_bytes

# The dataset card of the Hugging Face Hub: ``README.md`` with YAML before its text.
#
# https://github.com/huggingface/hub-docs/blob/main/datasetcard.md. Every split lists its files, so that no other file in the repository is read,
# and declares its columns, so that readers do not infer them.

UNKNOWN = "unknown"
SIZES = (("n<1K", 10**3), ("1K<n<10K", 10**4), ("10K<n<100K", 10**5), ("100K<n<1M", 10**6), ("1M<n<10M", 10**7), ("10M<n<100M", 10**8))
"""The Hub's size categories, each with its exclusive upper bound in rows."""
_DTYPES = {"double": "float64", "float": "float32", "halffloat": "float16"}


def card(description: Description) -> str:
    """The text of ``README.md``."""
    matter = yaml.safe_dump(front_matter(description), sort_keys=False, allow_unicode=True, width=120)
    return f"---\n{matter}---\n\n" + "\n\n".join(_card_sections(description)) + "\n"


def front_matter(description: Description) -> dict[str, Any]:
    """The YAML that the Hub and ``datasets.load_dataset`` read."""
    rows = sum(table.rows for table in description.tables)
    by_name = {each.name: [table for table in description.tables if table.name == each.name] for each in description.tables}
    licence = list(description.licence) or [UNKNOWN]
    on_hub = (re.match(r"hub://([^/]+/[^/@]+)", address) for group in description.addresses.values() for address in group)
    repos = [match[1] for match in on_hub if match]
    return {
        "license": licence[0] if len(licence) == 1 else licence,
        "pretty_name": description.name,
        **({"source_datasets": list(dict.fromkeys(repos))} if repos else {}),
        "size_categories": [next((name for name, bound in SIZES if rows < bound), "n>100M")],
        "tags": ["prep-assets"],
        "configs": [
            {
                "config_name": name,
                **({} if number else {"default": True}),
                "data_files": [{"split": table.split, "path": list(table.files)} for table in tables],
            }
            for number, (name, tables) in enumerate(by_name.items())
        ],
        "dataset_info": [_dataset_info(description, tables) for tables in by_name.values()],
    }


def _dataset_info(description: Description, splits: Sequence[Table]) -> dict[str, Any]:
    sizes = [sum(description.files[file][0] for file in table.files) for table in splits]
    return {
        "config_name": splits[0].name,
        "features": features(splits[0].columns),
        "splits": [{"name": split.split, "num_bytes": size, "num_examples": split.rows} for split, size in zip(splits, sizes, strict=True)],
        "download_size": sum(sizes),
        "dataset_size": sum(sizes),
    }


def features(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Columns in the YAML form of ``datasets.Features``, which decodes those of `hf_parquet` with files."""
    files = {"images": ["image"], "audios": ["audio"], "videos": ["video"]}
    kinds = (
        (column.name, column.kind if column.kind != [{"bytes": "binary", "path": "string"}] else files.get(column.name, column.kind))
        for column in columns
    )
    return [{"name": name, **_feature(kind)} for name, kind in kinds]


def _feature(kind: Kind) -> dict[str, Any]:
    if isinstance(kind, str):
        return {"dtype": _DTYPES.get(kind, kind)}
    if isinstance(kind, dict):
        return {"struct": [{"name": name, **_feature(inner)} for name, inner in kind.items()]}
    element = _feature(kind[0])
    return {"list": element.get("dtype") or element.get("struct") or element}


def _card_sections(description: Description) -> Iterable[str]:
    yield f"# {description.name}\n\n{description.summary}"
    yield _markdown_table(("split", "rows", "columns"), [
        (f"{table.name}, {table.split}", f"{table.rows:,}", ", ".join(column.name for column in table.columns)) for table in description.tables
    ])  # fmt: skip
    yield "## Counts\n\n" + _counted(("", ""), description.counts)
    refused = f"Records that were refused, with the reason:\n\n{_counted(('', 'records'), description.refused)}"
    yield refused if description.refused else "No record was refused."
    yield f"## Sources\n\nLicence of the whole: {', '.join(description.licence) or UNKNOWN}."
    if description.sources:
        yield _markdown_table(("domain", "licence", "from"), [
            (name, description.licences[name] or UNKNOWN, ", ".join(description.addresses[name]) or "files of the builder") for name in description.licences
        ])  # fmt: skip
        yield _markdown_table(("domain", "file", "rows", "sha256"), [
            (source.domain, source.name + " (held out)" * source.held_out, f"{source.rows:,}", f"`{source.sha256}`") for source in description.sources
        ])  # fmt: skip
    if description.licence_rows:
        counted = _counted(("licence", "rows"), description.licence_rows)
        yield f"Licences that rows of the sources name, of those that the store has records of:\n\n{counted}"
    yield "## Hashes\n\n" + _markdown_table(("of", "sha256"), [(name, f"`{value}`") for name, value in description.hashes.items()])
    yield "`manifest.json` has the hash of every file."
    yield "## Checks\n\nOver all rows of each store on the way:\n\n" + _markdown_table(
        ("store", "holds"), [(asset, ", ".join(checks)) for asset, checks in description.proofs.items()]
    )
    yield f"## Build it again\n\nWith the same configuration and sources, equal bytes:\n\n```bash\n{description.command}\n```"


def _counted(header: Sequence[str], counts: Mapping[str, int]) -> str:
    return _markdown_table(header, [(name, f"{count:,}") for name, count in counts.items()])


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines)


# Croissant 1.1: a data set, its files with hashes and its columns, as JSON-LD.
#
# https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html. Addresses of files are relative to the folder of ``croissant.json``.

_CONTEXT_TERMS: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "prov": "http://www.w3.org/ns/prov#",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}
_NAMES = (
    "@language @vocab arrayShape citeAs column conformsTo containedIn cr data dataType dct description equivalentProperty examples "
    "extract field fileObject fileProperty fileSet format includes isArray isLiveDataset jsonPath key md5 name parentField path prov "
    "rai recordSet references regex repeated replace samplingRate sc separator source subField transform"
)
CONTEXT = {name: _CONTEXT_TERMS.get(name, f"cr:{name}") for name in _NAMES.split()}
"""The context of the specification, with W3C's provenance vocabulary."""


def croissant(description: Description) -> dict[str, Any]:
    """The Croissant JSON-LD of a store with tables."""
    records = [entry for table in description.tables for entry in _record_set_entries(table)]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": description.name,
        "description": f"{description.summary} Built by prep-assets: {description.command}",
        "license": list(description.licence) or ["unknown"],
        "version": f"0.0.0+{description.content_hash}",
        "prov:wasDerivedFrom": [_source_entity(description, number, source) for number, source in enumerate(description.sources)],
        "distribution": [
            *(_file_object(description, file) for table in description.tables for file in table.files),
            *(entry for key, entry in records if key == "distribution"),
        ],
        "recordSet": [entry for key, entry in records if key == "recordSet"],
    }


def _source_entity(description: Description, number: int, source: Source) -> dict[str, Any]:
    addresses = description.addresses[source.domain]
    return {
        "@type": "prov:Entity",
        "@id": f"source/{number}",
        "prov:label": f"{source.domain}: {source.name}",
        **({"prov:atLocation": list(addresses)} if addresses else {}),
        "contentSize": f"{source.bytes} B",
        "sha256": source.sha256,
    }


def _file_object(description: Description, file: str) -> dict[str, Any]:
    size, sha256 = description.files[file]
    fields = {"name": file, "contentUrl": file, "contentSize": f"{size} B", "encodingFormat": _encoding_format(file), "sha256": sha256}
    return {"@type": "cr:FileObject", "@id": file, **fields}


def _encoding_format(file: str) -> str:
    return {"parquet": "application/x-parquet", "jsonl": "application/jsonlines"}[file.rpartition(".")[2]]


def _record_set_entries(table: Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the file set of a table with several files, and its record set, each with the key of the data set that lists it."""
    path = f"{table.name}/{table.split}"
    source = {"fileObject": {"@id": table.files[0]}}
    if len(table.files) > 1:
        source = {"fileSet": {"@id": f"{path}/files"}}
        shards = {"encodingFormat": _encoding_format(table.files[0]), "includes": list(table.files)}
        yield "distribution", {"@type": "cr:FileSet", "@id": f"{path}/files", **shards}
    fields = [_field(f"{path}/{column.name}", {**source, "extract": {"column": column.name}}, column.kind) for column in table.columns]
    yield "recordSet", {"@type": "cr:RecordSet", "@id": path, "name": path, "description": f"{table.rows} rows", "field": fields}


def _field(path: str, source: dict[str, Any], kind: Kind) -> dict[str, Any]:
    depth = 0
    while isinstance(kind, list):
        kind, depth = kind[0], depth + 1
    entry: dict[str, Any] = {"@type": "cr:Field", "@id": path, "name": path}
    if depth:
        entry |= {"isArray": True, "arrayShape": ",".join(["-1"] * depth)}
    if isinstance(kind, str):
        return {**entry, "dataType": _data_type(kind), "source": source}
    flat = [name for name, inner in kind.items() if isinstance(inner, str)]
    nested = ", ".join(name for name in kind if name not in flat)
    note = {"description": f"Its keys {nested} hold objects, which Croissant has no words for; they are in the files."} if nested else {}
    inner = [_field(f"{path}/{name}", {**source, "transform": {"jsonPath": name}}, kind[name]) for name in flat]
    return {**entry, **note, "subField": inner}


def _data_type(kind: str) -> str:
    if kind in ("double", "float", "halffloat"):
        return "sc:Float"
    return "sc:Integer" if kind.startswith(("int", "uint")) else "sc:Boolean" if kind == "bool" else "sc:Text"


# A release as a data set of the Hugging Face Hub: one commit, whose parent is the one that was inspected.

_HUB_FILES = {".gitattributes"}
"""Files that the Hub itself adds to a new repository."""
_PRECONDITION_FAILED = 412
"""HTTP status of a commit whose parent is no longer the head."""
CARD, CROISSANT = "README.md", "croissant.json"
RELEASE_FILES = (CARD, CROISSANT, MANIFEST)
"""Files of a release in addition to those of the store."""


class Pushed(Struct, frozen=True):
    """The result of a push: the new head commit, its URL and the removed files."""

    commit: str
    url: str
    removed: tuple[str, ...]


def licence_of(release: Release) -> str:
    """The licence in the card; ``unknown`` if it has none."""
    match = re.match(r"---\n(.*?)^---$", release.content(CARD).decode(), re.DOTALL | re.MULTILINE)
    try:
        licence = (read_yaml(match[1]) or {}).get("license") if match else None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{CARD}: the lines between --- are not YAML: {error}. Mend them") from error
    return ", ".join(licence) if isinstance(licence, list) else str(licence or UNKNOWN)


def push(release: Release, repository: str, *, private: bool = False, api: Any = None) -> Pushed:
    """Replace the files of an earlier push in a repository by those of a release, in one commit.

    Args:
        repository: ``owner/name`` of a data set; created if missing.
        api: a `huggingface_hub.HfApi`; by default one with the token stored by its command line, or ``HF_TOKEN``.

    Raises:
        ConfigError: an invalid name, or a repository with files that no push put there.
        StoreError: a file differs from the manifest, or the repository changed meanwhile; nothing was uploaded.
        SourceUnavailable: the Hub is unreachable, or rejects the request.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from huggingface_hub.errors import HTTPError as NoAnswer  # type: ignore[attr-defined]

    try:
        return _push(release, repository, private, api or HfApi())
    except HFValidationError as error:
        raise ConfigError(f"{repository!r} is not the name of a data set on the Hub, owner/name: {error}") from None
    except (OSError, ValueError, NoAnswer) as error:  # base classes of what huggingface_hub raises
        if isinstance(error, HfHubHTTPError) and error.response.status_code == _PRECONDITION_FAILED:
            raise StoreError(
                f"{repository} was changed by somebody else meanwhile; nothing was uploaded. Look at it, and push again"
            ) from None
        text = re.sub(r"hf_\w+", "hf_…", error_text(error))
        raise SourceUnavailable(
            f"{repository}: {text}. Look at the name, the network and the token (hf auth whoami), then try again"
        ) from None


def _push(release: Release, repository: str, private: bool, api: Any) -> Pushed:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    additions = [CommitOperationAdd(name, content) for name, content in release.files.items()]
    for addition in additions:  # checks the content that was read for the upload
        entry = release.manifest.files.get(addition.path_in_repo)
        if entry is not None and addition.upload_info.sha256.hex() != entry["sha256"]:
            raise StoreError(f"{release.where}: {addition.path_in_repo} is not what the manifest says. Nothing was uploaded")
    api.create_repo(repository, repo_type="dataset", private=private, exist_ok=True)
    info = api.repo_info(repository, repo_type="dataset")
    if private and not info.private:
        raise ConfigError(f"{repository} is public already. Make it private on the Hub, or push to another one")
    head = info.sha
    remote_files = set(api.list_repo_files(repository, repo_type="dataset", revision=head))
    pushed_files = _pushed_files(api, repository, head) if MANIFEST in remote_files else set[str]()
    foreign = remote_files - pushed_files - _HUB_FILES
    if foreign and not pushed_files:
        raise ConfigError(
            f"{repository} holds {len(foreign):,} files that no push put there, for example {min(foreign)}. Push to a new repository"
        )
    removed = sorted(remote_files & pushed_files - set(release.files))
    commit = api.create_commit(
        repository,
        [*additions, *(CommitOperationDelete(name, is_folder=False) for name in removed)],
        commit_message=f"{release.manifest.asset} {release.manifest.content_hash[:12]}",
        repo_type="dataset",
        parent_commit=head,
    )
    return Pushed(commit.oid, str(commit.commit_url), tuple(removed))


def _pushed_files(api: Any, repository: str, head: str) -> set[str]:
    """The files of an earlier push to the repository."""
    manifest = manifest_in(Path(api.hf_hub_download(repository, MANIFEST, repo_type="dataset", revision=head)))
    return {*manifest.files, *RELEASE_FILES} if manifest else set()


class Release(Struct, frozen=True):
    """A store prepared for publication.

    Attributes:
        where: its name in messages.
        manifest: of the store.
        files: name → path, or content.
    """

    where: str
    manifest: Manifest
    files: Mapping[str, Path | bytes]

    def content(self, name: str) -> bytes:
        """The content of a file."""
        file = self.files[name]
        return file if isinstance(file, bytes) else file.read_bytes()

    def size(self, name: str) -> int:
        """The size of a file, in bytes."""
        file = self.files[name]
        return len(file) if isinstance(file, bytes) else file.stat().st_size


def release_of(workspace: Workspace, asset: str, partition: str = "") -> Release:
    """The release of a current store, verified against its manifest.

    Raises:
        ConfigError: the store has no file that other tools can read.
        StoreError: as `describe`; or a file was altered.
    """
    description, published = describe(workspace, asset, partition)
    if not description.tables:
        raise ConfigError(
            f"{description.name} has neither Parquet nor JSON lines in it, which is what other tools read. Publish an export of it:\n"
            f"  exports: {{hub: {{from: {asset}, to: hf_parquet}}}}"
        )
    published.verify()
    manifest = published.manifest
    generated = {
        CARD: card(description).encode(),
        CROISSANT: (json.dumps(croissant(description), indent=1, ensure_ascii=False) + "\n").encode(),
        MANIFEST: manifest.text.encode(),
    }
    return Release(description.name, manifest, {**{name: published.directory / name for name in manifest.files}, **generated})


def release_in(folder: Path) -> Release:
    """The release in a folder that `write_release` wrote. Only its card may have been edited since.

    Raises:
        StoreError: the folder is not a release, or a file is missing, altered or unexpected.
    """
    manifest = Manifest.read(folder)
    missing = [f"{name}: missing" for name in RELEASE_FILES if not (folder / name).is_file()]
    expected_faults = tuple(f"{name}: not in the manifest" for name in RELEASE_FILES)
    if faults := [*missing, *(fault for fault in payload_faults(folder, manifest) if fault not in expected_faults)]:
        raise StoreError(f"{folder} is not what its manifest says:\n  " + "\n  ".join(faults))
    return Release(str(folder), manifest, {name: folder / name for name in (*manifest.files, *RELEASE_FILES)})


def write_release(release: Release, out: Path) -> None:
    """Write a release into a new folder, which ``datasets.load_dataset`` opens.

    Raises:
        ConfigError: the folder is not empty, or cannot be created.
        StoreError: a file of the store changed meanwhile; nothing is written.
    """

    def write(work: Path) -> None:
        for name, content in release.files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                write_bytes(work / name, content)
            else:
                with content.open("rb") as source, WrittenFile(work / name) as file:
                    shutil.copyfileobj(source, file, BLOCK)
        release_in(work)

    write_whole(out, write)
