"""The Hugging Face Hub: dataset cards, Croissant, and releases."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from prep_assets.data.files import hub_address, is_hub
from prep_assets.errors import ConfigError, PrepAssetsError, SourceUnavailable, StoreError
from prep_assets.exports.registry import write_whole
from prep_assets.neighbours.description import Column, Description, Kind, Source, Table, describe
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.bucket import error_text
from prep_assets.stores.manifest import MANIFEST, Manifest, payload_faults
from prep_assets.stores.verification import BLOCK, WrittenFile

# The dataset card of the Hugging Face Hub: ``README.md`` with YAML before its text.
#
# https://github.com/huggingface/hub-docs/blob/main/datasetcard.md. Every split names its files one by one, so that nothing else in a repository is
# read, and declares its columns, so that no reader guesses them.

UNKNOWN = "unknown"
SIZES = (("n<1K", 10**3), ("1K<n<10K", 10**4), ("10K<n<100K", 10**5), ("100K<n<1M", 10**6), ("1M<n<10M", 10**7), ("10M<n<100M", 10**8))
"""The Hub's names of sizes, each with the number of rows that it ends below."""
_DTYPES = {"double": "float64", "float": "float32", "halffloat": "float16"}


def card(description: Description) -> str:
    """The text of ``README.md``."""
    matter = yaml.safe_dump(front_matter(description), sort_keys=False, allow_unicode=True, width=120)
    return f"---\n{matter}---\n\n" + "\n\n".join(_text(description)) + "\n"


def front_matter(description: Description) -> dict[str, Any]:
    """What the Hub and ``datasets.load_dataset`` read."""
    rows = sum(table.rows for table in description.tables)
    names = list(dict.fromkeys(table.name for table in description.tables))
    licence = list(description.licence) or [UNKNOWN]
    hub = [hub_address(address).repository for each in description.addresses.values() for address in each if is_hub(address)]
    return {
        "license": licence[0] if len(licence) == 1 else licence,
        "pretty_name": description.name,
        **({"source_datasets": list(dict.fromkeys(hub))} if hub else {}),
        "size_categories": [next((name for name, most in SIZES if rows < most), "n>100M")],
        "tags": ["prep-assets"],
        "configs": [
            {
                "config_name": name,
                **({"default": True} if name == names[0] else {}),
                "data_files": [{"split": table.split, "path": list(table.files)} for table in description.tables if table.name == name],
            }
            for name in names
        ],
        "dataset_info": [_info(description, [table for table in description.tables if table.name == name]) for name in names],
    }


def _info(description: Description, splits: Sequence[Table]) -> dict[str, Any]:
    sizes = [sum(description.files[file][0] for file in table.files) for table in splits]
    return {
        "config_name": splits[0].name,
        "features": features(splits[0].columns),
        "splits": [{"name": each.split, "num_bytes": size, "num_examples": each.rows} for each, size in zip(splits, sizes, strict=True)],
        "download_size": sum(sizes),
        "dataset_size": sum(sizes),
    }


def features(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Columns as ``datasets.Features`` are written in YAML."""
    return [{"name": column.name, **_feature(column.kind)} for column in columns]


def _feature(kind: Kind) -> dict[str, Any]:
    if isinstance(kind, str):
        return {"dtype": _DTYPES.get(kind, kind)}
    if isinstance(kind, dict):
        return {"struct": [{"name": name, **_feature(each)} for name, each in kind.items()]}
    of = _feature(kind[0])
    return {"list": of.get("dtype") or of.get("struct") or of}


def _text(description: Description) -> Iterable[str]:
    yield f"# {description.name}\n\n{description.summary}"
    yield _table(("split", "rows", "columns"), [
        (f"{table.name}, {table.split}", f"{table.rows:,}", ", ".join(column.name for column in table.columns)) for table in description.tables
    ])  # fmt: skip
    yield "## Counts\n\n" + _table(("", ""), [(name, f"{count:,}") for name, count in description.counts.items()])
    if description.refused:
        yield "Records that were refused, with the reason:\n\n" + _table(
            ("", "records"), [(step, f"{count:,}") for step, count in description.refused.items()]
        )
    else:
        yield "No record was refused."
    yield f"## Sources\n\nLicence of the whole: {', '.join(description.licence) or UNKNOWN}."
    if description.sources:
        yield _table(("domain", "licence", "from"), [
            (name, description.licences[name] or UNKNOWN, ", ".join(description.addresses[name]) or "files of the builder") for name in description.licences
        ])  # fmt: skip
        yield _table(("domain", "file", "rows", "sha256"), [
            (each.domain, each.name + " (held out)" * each.held_out, f"{each.rows:,}", f"`{each.sha256}`") for each in description.sources
        ])  # fmt: skip
    yield "## Hashes\n\n" + _table(("of", "sha256"), [(name, f"`{value}`") for name, value in description.hashes.items()])
    yield "`manifest.json` has the hash of every file."
    yield "## Checks\n\nOver all rows of each store on the way:\n\n" + _table(
        ("store", "holds"), [(asset, ", ".join(held)) for asset, held in description.proofs.items()]
    )
    yield f"## Build it again\n\nWith the same configuration and sources, equal bytes:\n\n```bash\n{description.command}\n```"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines)


# Croissant 1.1: what a data set is, its files with their hashes and its columns, as JSON-LD.
#
# https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html. Addresses of files are relative to the folder of ``croissant.json``.

_OTHERS: dict[str, Any] = {
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
CONTEXT = {name: _OTHERS.get(name, f"cr:{name}") for name in _NAMES.split()}
"""The context that the specification gives, with W3C's words for provenance."""


def croissant(description: Description) -> dict[str, Any]:
    """The JSON-LD of a store that has tables."""
    records = [entry for table in description.tables for entry in _records(table)]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": description.name,
        "description": f"{description.summary} Built by prep-assets: {description.command}",
        "license": list(description.licence) or ["unknown"],
        "version": f"0.0.0+{description.content_hash}",
        "prov:wasDerivedFrom": [_source(description, number, source) for number, source in enumerate(description.sources)],
        "distribution": [
            *(_file(description, file) for table in description.tables for file in table.files),
            *(entry for key, entry in records if key == "distribution"),
        ],
        "recordSet": [entry for key, entry in records if key == "recordSet"],
    }


def _source(description: Description, number: int, source: Source) -> dict[str, Any]:
    addresses = description.addresses[source.domain]
    return {
        "@type": "prov:Entity",
        "@id": f"source/{number}",
        "prov:label": f"{source.domain}: {source.name}",
        **({"prov:atLocation": list(addresses)} if addresses else {}),
        "contentSize": f"{source.bytes} B",
        "sha256": source.sha256,
    }


def _file(description: Description, file: str) -> dict[str, Any]:
    size, sha256 = description.files[file]
    about = {"name": file, "contentUrl": file, "contentSize": f"{size} B", "encodingFormat": _format(file), "sha256": sha256}
    return {"@type": "cr:FileObject", "@id": file, **about}


def _format(file: str) -> str:
    return {"parquet": "application/x-parquet", "jsonl": "application/jsonlines"}[file.rpartition(".")[2]]


def _records(table: Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """The set of files of a table, where it has several, and its record set; before each the key of the data set that lists it."""
    place = f"{table.name}/{table.split}"
    source = {"fileObject": {"@id": table.files[0]}}
    if len(table.files) > 1:
        source = {"fileSet": {"@id": f"{place}/files"}}
        shards = {"encodingFormat": _format(table.files[0]), "includes": list(table.files)}
        yield "distribution", {"@type": "cr:FileSet", "@id": f"{place}/files", **shards}
    fields = [_field(f"{place}/{each.name}", {**source, "extract": {"column": each.name}}, each.kind) for each in table.columns]
    yield "recordSet", {"@type": "cr:RecordSet", "@id": place, "name": place, "description": f"{table.rows} rows", "field": fields}


def _field(place: str, source: dict[str, Any], kind: Kind) -> dict[str, Any]:
    depth = 0
    while isinstance(kind, list):
        kind, depth = kind[0], depth + 1
    found: dict[str, Any] = {"@type": "cr:Field", "@id": place, "name": place}
    if depth:
        found |= {"isArray": True, "arrayShape": ",".join(["-1"] * depth)}
    if isinstance(kind, str):
        return {**found, "dataType": _type(kind), "source": source}
    plain = [name for name, inner in kind.items() if isinstance(inner, str)]
    deep = ", ".join(name for name in kind if name not in plain)
    note = {"description": f"Its keys {deep} hold objects, which Croissant has no words for; they are in the files."} if deep else {}
    inner = [_field(f"{place}/{name}", {**source, "transform": {"jsonPath": name}}, kind[name]) for name in plain]
    return {**found, **note, "subField": inner}


def _type(kind: str) -> str:
    if kind in ("double", "float", "halffloat"):
        return "sc:Float"
    return "sc:Integer" if kind.startswith(("int", "uint")) else "sc:Boolean" if kind == "bool" else "sc:Text"


# A release as a data set of the Hugging Face Hub: one commit, on top of the one that was looked at.

_GIVEN = {".gitattributes"}
"""What the Hub itself puts into a new repository."""
_CHANGED = 412
"""The status of a commit whose parent is no longer the latest."""
CARD, CROISSANT = "README.md", "croissant.json"
BESIDE = (CARD, CROISSANT, MANIFEST)
"""What a release has beside the files of the store."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did: the latest commit afterwards, and which files are gone."""

    commit: str
    url: str
    removed: tuple[str, ...]


def licence_of(release: Release) -> str:
    """What the card says; ``unknown`` where it says nothing."""
    match = re.match(r"---\n(.*?)^---$", release.content(CARD).decode(), re.DOTALL | re.MULTILINE)
    found = (yaml.safe_load(match[1]) or {}).get("license") if match else None
    return ", ".join(found) if isinstance(found, list) else str(found or UNKNOWN)


def push(release: Release, repository: str, *, private: bool = False, api: Any = None) -> Pushed:
    """Make a repository hold a release, and nothing that an earlier push put there.

    Args:
        repository: ``owner/name`` of a data set; it is created if missing.
        api: a `huggingface_hub.HfApi`; by default one with the token that its command line stored, or of ``HF_TOKEN``.

    Raises:
        ConfigError: the name means nothing, or the repository holds what no push put there.
        StoreError: a file is no longer what the manifest says, or the repository was changed meanwhile; nothing was uploaded.
        SourceUnavailable: the Hub does not answer, or says no.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from huggingface_hub.errors import HTTPError as NoAnswer  # type: ignore[attr-defined]

    try:
        return _push(release, repository, private, api or HfApi())
    except PrepAssetsError:
        raise
    except HFValidationError as error:
        raise ConfigError(f"{repository!r} is not the name of a data set on the Hub, owner/name: {error}") from None
    except (OSError, ValueError, NoAnswer) as error:  # what huggingface_hub raises derives from these
        if isinstance(error, HfHubHTTPError) and error.response.status_code == _CHANGED:
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
    for each in additions:  # what is about to be uploaded, as it was read for that
        entry = release.manifest.files.get(each.path_in_repo)
        if entry is not None and each.upload_info.sha256.hex() != entry["sha256"]:
            raise StoreError(f"{release.where}: {each.path_in_repo} is not what the manifest says. Nothing was uploaded")
    api.create_repo(repository, repo_type="dataset", private=private, exist_ok=True)
    found = api.repo_info(repository, repo_type="dataset")
    if private and not found.private:
        raise ConfigError(f"{repository} is public already. Make it private on the Hub, or push to another one")
    head = found.sha
    there = set(api.list_repo_files(repository, repo_type="dataset", revision=head))
    before = _before(api, repository, head) if MANIFEST in there else set[str]()
    foreign = there - before - _GIVEN
    if foreign and not before:
        raise ConfigError(
            f"{repository} holds {len(foreign):,} files that no push put there, for example {min(foreign)}. Push to a repository of its own"
        )
    removed = sorted(there & before - set(release.files))
    done = api.create_commit(
        repository,
        [*additions, *(CommitOperationDelete(name, is_folder=False) for name in removed)],
        commit_message=f"{release.manifest.asset} {release.manifest.content_hash[:12]}",
        repo_type="dataset",
        parent_commit=head,
    )
    return Pushed(done.oid, str(done.commit_url), tuple(removed))


def _before(api: Any, repository: str, head: str) -> set[str]:
    """Files that an earlier push put into the repository."""
    path = Path(api.hf_hub_download(repository, MANIFEST, repo_type="dataset", revision=head))
    try:
        return {*Manifest.parse(path.read_bytes(), f"{repository}/{MANIFEST}").files, *BESIDE}
    except StoreError:  # another program's
        return set()


@dataclass(frozen=True, slots=True)
class Release:
    """A store to be published.

    Attributes:
        where: what messages call it.
        manifest: of the store.
        files: name → the file, or its content.
    """

    where: str
    manifest: Manifest
    files: Mapping[str, Path | bytes]

    def content(self, name: str) -> bytes:
        """What one of its files holds."""
        found = self.files[name]
        return found if isinstance(found, bytes) else found.read_bytes()

    def size(self, name: str) -> int:
        """How large one of its files is."""
        found = self.files[name]
        return len(found) if isinstance(found, bytes) else found.stat().st_size


def release_of(workspace: Workspace, asset: str, partition: str = "") -> Release:
    """The release of a current store, whose files are what its manifest says.

    Raises:
        ConfigError: it has no file that others can read.
        StoreError: as `describe`; or a file is altered.
    """
    description, published = describe(workspace, asset, partition)
    if not description.tables:
        raise ConfigError(
            f"{description.name} has neither Parquet nor JSON lines in it, which is what other tools read. Publish an export of it:\n"
            f"  exports: {{hub: {{from: {asset}, to: hf_parquet}}}}"
        )
    published.verify()
    manifest = published.manifest
    made = {
        CARD: card(description).encode(),
        CROISSANT: (json.dumps(croissant(description), indent=1, ensure_ascii=False) + "\n").encode(),
        MANIFEST: manifest.text.encode(),
    }
    return Release(description.name, manifest, {**{name: published.directory / name for name in manifest.files}, **made})


def release_in(folder: Path) -> Release:
    """The release in a folder that `write_release` wrote. Its card may have been edited since; everything else is as it was.

    Raises:
        StoreError: the folder is not a release, or a file is missing, altered or foreign.
    """
    manifest = Manifest.read(folder)
    missing = [f"{name}: missing" for name in BESIDE if not (folder / name).is_file()]
    own = tuple(f"{name}: not in the manifest" for name in BESIDE)
    if faults := [*missing, *(fault for fault in payload_faults(folder, manifest) if fault not in own)]:
        raise StoreError(f"{folder} is not what its manifest says:\n  " + "\n  ".join(faults))
    return Release(str(folder), manifest, {name: folder / name for name in (*manifest.files, *BESIDE)})


def write_release(release: Release, out: Path) -> None:
    """Write a release into a new folder, which ``datasets.load_dataset`` opens.

    Raises:
        ConfigError: the folder is not empty, or cannot be made.
        StoreError: a file of the store changed meanwhile; nothing is written.
    """

    def write(work: Path) -> None:
        for name, content in release.files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            with WrittenFile(work / name) as file:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    with content.open("rb") as source:
                        shutil.copyfileobj(source, file, BLOCK)
        release_in(work)

    write_whole(out, write)
