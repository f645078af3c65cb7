"""Croissant 1.1: what a data set is, its files with their hashes and its columns, as JSON-LD.

https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html. Addresses of files are relative to the folder of ``croissant.json``.
"""

from __future__ import annotations

from typing import Any

from prep_assets.neighbours.description import Description, Source
from prep_assets.neighbours.tables import Column, Table

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
_FORMATS = {"parquet": "application/x-parquet", "jsonl": "application/jsonlines"}


def croissant(description: Description) -> dict[str, Any]:
    """The JSON-LD of a store that has tables."""
    listed = [file for table in description.tables for file in table.files]
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
            *(_file(description, file) for file in listed),
            *(_shards(table) for table in description.tables if len(table.files) > 1),
        ],
        "recordSet": [_records(table) for table in description.tables],
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
    kind = _FORMATS[file.rpartition(".")[2]]
    return {
        "@type": "cr:FileObject",
        "@id": file,
        "name": file,
        "contentUrl": file,
        "contentSize": f"{size} B",
        "encodingFormat": kind,
        "sha256": sha256,
    }


def _shards(table: Table) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": f"{_place(table)}/files",
        "encodingFormat": _FORMATS[table.files[0].rpartition(".")[2]],
        "includes": list(table.files),
    }


def _place(table: Table) -> str:
    return f"{table.name}/{table.split}"


def _records(table: Table) -> dict[str, Any]:
    source = {"fileSet": {"@id": f"{_place(table)}/files"}} if len(table.files) > 1 else {"fileObject": {"@id": table.files[0]}}
    fields = [_field(f"{_place(table)}/{each.name}", source, each) for each in table.columns]
    return {"@type": "cr:RecordSet", "@id": _place(table), "name": _place(table), "description": f"{table.rows} rows", "field": fields}


def _field(place: str, source: dict[str, Any], column: Column) -> dict[str, Any]:
    kind, depth = column.kind, 0
    while isinstance(kind, list):
        kind, depth = kind[0], depth + 1
    where = {**source, "extract": {"column": column.name}}
    found: dict[str, Any] = {"@type": "cr:Field", "@id": place, "name": place}
    if depth:
        found |= {"isArray": True, "arrayShape": ",".join(["-1"] * depth)}
    if isinstance(kind, str):
        return {**found, "dataType": _type(kind), "source": where}
    plain = [name for name, each in kind.items() if isinstance(each, str)]
    deep = ", ".join(name for name in kind if name not in plain)
    note = {"description": f"Its keys {deep} hold objects, which Croissant has no words for; they are in the files."} if deep else {}
    inner = [_key(f"{place}/{name}", where, name, str(kind[name])) for name in plain]
    return {**found, **note, "subField": inner}


def _key(place: str, source: dict[str, Any], name: str, kind: str) -> dict[str, Any]:
    where = {**source, "transform": {"jsonPath": name}}
    return {"@type": "cr:Field", "@id": place, "name": place, "dataType": _type(kind), "source": where}


def _type(kind: str) -> str:
    if kind in ("double", "float", "halffloat"):
        return "sc:Float"
    return "sc:Integer" if kind.startswith(("int", "uint")) else "sc:Boolean" if kind == "bool" else "sc:Text"
