"""What is fed: each reader of bytes that a stranger or a bad disk may have written, with the sound bytes that its inputs are made of.

Most take a few microseconds to a millisecond an input, in memory or from one file in a folder in memory. Those that open a whole store, or
run a template, are slow and get fewer.
"""

from __future__ import annotations

import bz2
import copy
import gzip
import io
import json
import lzma
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from harness.workloads import FORMATS
from prep_assets import load
from prep_assets.config.loading import load_family, read_tombstones
from prep_assets.data.files import SourceFile, find
from prep_assets.data.quarantine import read_quarantine
from prep_assets.data.read import read_blocks
from prep_assets.data.stream import _zstd_module
from prep_assets.extensions.buckets.backend import Catalog
from prep_assets.extensions.preprocess.dataset_info import domain_of, read_dataset_info
from prep_assets.samples import Sample
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with, schemas
from prep_assets.stores.guards import UNGUARDED, load_array
from prep_assets.stores.manifest import Manifest, digest, parse_results
from prep_assets.stores.version_folders import Pointers
from prep_assets.text.load_template import named_templates
from prep_assets.text.render import render
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import from_file

Feed = Callable[[Path, bytes], object]
CONFIGS = Path(__file__).parents[2] / "configs"


@dataclass(frozen=True, slots=True)
class Target:
    """One reader.

    Attributes:
        feed: reads bytes, in a folder of its own.
        sound: inputs that it accepts, which others are made of.
        is_json: whether values are changed as well as bytes.
        share: how many inputs it gets for one of the fastest.
    """

    feed: Feed
    sound: tuple[bytes, ...]
    is_json: bool = False
    share: float = 1.0


def targets(folder: Path) -> dict[str, Target]:
    """By name."""
    folder.mkdir(parents=True, exist_ok=True)
    return {**dict(_schemas()), **dict(_files()), **dict(_records()), **dict(_tokenizers()), **dict(_templates()), **dict(_stores(folder))}


def _file(name: str, read: Callable[[Path], object], *beside: tuple[str, bytes]) -> Feed:
    """Write the input to a file and read it."""

    def feed(folder: Path, data: bytes) -> None:
        for other, content in beside:
            if not (folder / other).exists():
                (folder / other).write_bytes(content)
        (folder / name).write_bytes(data)
        read(folder)

    return feed


def _schemas() -> Iterator[tuple[str, Target]]:
    for name, each in schemas().items():
        if each.example:
            yield f"schema {name}", Target(_schema(name), (json.dumps(dict(each.example)).encode(),), is_json=True)


def _schema(name: str) -> Feed:
    reader, decode = Reader(convert_with(name), Account()), msgspec.json.Decoder().decode

    def feed(_: Path, data: bytes) -> None:
        try:
            payload = decode(data)
        except (ValueError, RecursionError):
            return
        if type(payload) is dict:
            apply(reader, payload)
            reader.rows([payload])

    return feed


def _files() -> Iterator[tuple[str, Target]]:
    manifest = _manifest().text.encode()
    yield "manifest", Target(lambda _, data: Manifest.parse(data, "manifest.json"), (manifest,), is_json=True)
    yield "manifest, sealed", Target(_sealed, (manifest,), is_json=True, share=0.5)
    checks = b'{"content_hash": "a", "checks": {"integrity": [true, "2 files"]}}'
    yield "checks", Target(lambda _, data: parse_results(data, "a"), (checks,), is_json=True)
    catalog = Catalog(3, Pointers(), ("a-b",), {"a-b": "2026-01-01"}, ("c",))
    yield "catalog", Target(lambda _, data: Catalog.parse(data, "s3://bucket/store"), (catalog.data,), is_json=True)
    info = b'{"a": {"file_name": "a.json", "formatting": "sharegpt", "columns": {"messages": "m"}, "tags": {"role_tag": "r"}}}'
    yield "dataset_info", Target(_dataset_info, (info,), is_json=True, share=0.5)
    refusals = b'{"id": "a", "stage": "b", "reason": "c", "detail": "d", "payload": "e", "payload_length": 1}\n' * 2
    yield "quarantine", Target(_file("q.jsonl", lambda at: list(read_quarantine(at / "q.jsonl"))), (refusals,), is_json=True)
    forgotten = msgspec.json.encode({"family": "sft", "domain": "a", "digest": "0" * 64, "record": "a:1", "reason": "x"}) + b"\n"
    yield "tombstones", Target(_file("forgotten.jsonl", read_tombstones), (forgotten,), is_json=True)
    state = b'{"_data_files": [{"filename": "data.arrow"}], "_split": null}'
    saved = _file("state.json", lambda at: list(find(".", at)), ("data.arrow", b""))
    yield "state.json", Target(saved, (state,), is_json=True, share=0.5)
    for family in ("sft", "pretrain", "preference", "rl"):
        text = (CONFIGS / f"{family}.yaml").read_bytes()
        short = b"tokenizer: {name: tok}\ndomains:\n  a: {files: [a.jsonl], schema: alpaca}\n"
        yield (
            f"configuration {family}",
            Target(_file(f"{family}.yaml", lambda at, name=family: load_family(name, at)), (short, text), share=0.02),  # type: ignore[misc]
        )
    for dtype in ("int64", "float32"):
        array = io.BytesIO()
        np.save(array, np.arange(9).astype(dtype))
        yield f"npy {dtype}", Target(_file("a.npy", _load), (array.getvalue(),), share=0.5)


def _load(folder: Path) -> None:
    assert load_array(folder / "a.npy", UNGUARDED).ndim == 1


def _manifest() -> Manifest:
    files = {"x": {"bytes": 1, "sha256": "0" * 64, "blocks": "0" * 16}}
    return Manifest("a", "b", "c" * 64, "c" * 64, {"x": 1}, {"read": 1}, {}, files)


def _sealed(_: Path, data: bytes) -> None:
    """As somebody would write it who knows how a seal is made."""
    try:
        fields = json.loads(data)
        fields.pop("seal")
        sealed = json.dumps({**fields, "seal": digest(fields)}).encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    found = Manifest.parse(sealed, "manifest.json")
    assert found.content_hash and found.text


def _dataset_info(_: Path, data: bytes) -> None:
    entries = read_dataset_info(data.decode("utf-8", "replace"), "dataset_info.json")
    for name in entries:
        domain_of(name, entries)


def _records() -> Iterator[tuple[str, Target]]:
    rows = b'{"messages": [{"role": "user", "content": "a"}]}\n{"instruction": "b", "output": 1.5}\n'
    listed = b"[" + rows.strip().replace(b"\n", b",") + b"]"
    plain = {"jsonl": rows, "json": listed, "csv": b'a,b\n"1",2\n3,"x ""y"""\n', "tsv": b"a\tb\n1\t2\n", "txt": rows}
    for format_, data in plain.items():
        yield (
            f"records {format_}",
            Target(_rows(format_, None), (data,), is_json=format_ == "json", share=0.1 if format_ == "json" else 0.25),
        )
    packed = {
        "gzip": gzip.compress(rows, mtime=0),
        "bz2": bz2.compress(rows),
        "xz": lzma.compress(rows),
        "zstd": _zstd_module().compress(rows),
    }
    for compression, data in packed.items():
        yield f"records jsonl, {compression}", Target(_rows("jsonl", compression), (data,), share=0.2)
    tables = _tables()
    yield "records parquet", Target(_rows("parquet", None), (tables[0],), share=0.05)
    yield "records arrow", Target(_rows("arrow", None), tables[1:], share=0.05)


def _rows(format_: str, compression: str | None) -> Feed:
    def feed(folder: Path, data: bytes) -> None:
        path = folder / f"a.{format_}"
        path.write_bytes(data)
        for block in read_blocks(SourceFile(path.name, str(path), len(data), format_, compression), 0):
            assert all(type(record.payload) is dict for record in block.records)

    return feed


def _tables() -> tuple[bytes, ...]:
    import pyarrow as pa
    import pyarrow.ipc
    import pyarrow.parquet as pq

    table = pa.table({"text": ["a", "b"], "n": [1, 2], "l": [[{"role": "a"}], None]})
    parquet, file, stream = (pa.BufferOutputStream() for _ in range(3))
    pq.write_table(table, parquet)
    for out, opened in ((file, pyarrow.ipc.new_file), (stream, pyarrow.ipc.new_stream)):
        with opened(out, table.schema) as writer:
            writer.write_table(table)
    return tuple(bytes(out.getvalue()) for out in (parquet, file, stream))


def _tokenizers() -> Iterator[tuple[str, Target]]:
    spec = _tokenizer()
    sound = json.dumps(spec).encode()
    yield "tokenizer.json", Target(_file("a.json", lambda at: _encode(at / "a.json")), (sound,), is_json=True, share=0.1)
    beside = b'{"eos_token": {"content": "</s>"}, "extra_special_tokens": {"image_token": "a"}, "chat_template": [{"name": "a", "template": "b"}]}'
    settings = _file("tokenizer_config.json", lambda at: _encode(at / "tokenizer.json"), ("tokenizer.json", sound))
    yield "tokenizer_config.json", Target(settings, (beside,), is_json=True, share=0.1)
    ranks = b"".join(b"%s %d\n" % (msgspec.json.encode(bytes([number])).strip(b'"'), number) for number in range(256))
    split = ("a.json", b'{"pattern": "a+|.", "special_tokens": {"</s>": 300}, "eos_token": "</s>"}')
    yield "rank file", Target(_file("a.tiktoken", lambda at: _encode(at / "a.tiktoken"), split), (ranks,), share=0.05)
    yield (
        "rank file's pattern",
        Target(_file("a.json", lambda at: _encode(at / "a.tiktoken"), ("a.tiktoken", ranks)), (split[1],), is_json=True, share=0.01),
    )
    lowercase = ("tokenizer_config.json", b'{"do_lower_case": true}')
    words = b"[UNK]\n[SEP]\n[PAD]\n[CLS]\n[MASK]\na\nb\n##c\n"
    yield "vocab.txt", Target(_file("vocab.txt", lambda at: _encode(at / "vocab.txt"), lowercase), (words,), share=0.1)
    pairs = ("vocab.json", json.dumps({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}).encode())
    yield "merges.txt", Target(_file("merges.txt", lambda at: _encode(at / "merges.txt"), pairs), (b"#version: 0.2\na b\n",), share=0.1)
    vocab = [{"rank": number, "token_bytes": msgspec.json.encode(bytes([number])).decode().strip('"')} for number in range(256)]
    tekken = {
        "config": {"pattern": ".", "default_vocab_size": 258, "default_num_special_tokens": 2},
        "special_tokens": [{"rank": 0, "token_str": "<unk>"}, {"rank": 1, "token_str": "</s>"}],
        "vocab": vocab,
    }
    yield (
        "tekken.json",
        Target(_file("tekken.json", lambda at: _encode(at / "tekken.json")), (json.dumps(tekken).encode(),), is_json=True, share=0.02),
    )
    yield "SentencePiece", Target(_file("a.model", lambda at: _encode(at / "a.model")), (_sentencepiece(),), share=0.1)


def _tokenizer() -> Mapping[str, Any]:
    vocab = {"<unk>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4, "Ġ": 5, "Ġa": 6}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": 1, "content": "</s>", "special": True, **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)}
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}],
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "\\w+|."}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            **dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix")),
            "unk_token": "<unk>",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [["a", "b"], ["Ġ", "a"]],
        },
    }


def _sentencepiece() -> bytes:
    from transformers.utils import sentencepiece_model_pb2_new as proto

    model = proto.ModelProto()
    model.trainer_spec.model_type = 2
    for number, (text, kind) in enumerate((("<unk>", 2), ("<s>", 3), ("</s>", 3), ("▁", 1), ("a", 1), ("b", 1), ("ab", 1))):
        model.pieces.add(piece=text, score=-float(number), type=kind)
    return bytes(model.SerializeToString())


def _encode(path: Path) -> None:
    vocabulary = from_file("fed", path)
    vocabulary.backend.encode("a b ab </s>\ud7ff é", add_special_tokens=False)


def _templates() -> Iterator[tuple[str, Target]]:
    for name in ("chatml", "llama3", "mistral"):
        source = named_templates()[name]
        template = ChatTemplate(name, source, {"bos_token": "<s>", "eos_token": "</s>"}, control=("<s>", "</s>", "<|im_end|>"))
        read = convert_with("messages")
        example = json.dumps({"messages": [{"role": r, "content": f"x {r}"} for r in ("system", "user", "assistant", "user", "assistant")]})
        yield f"chats by {name}", Target(_chats(template, Reader(read, Account())), (example.encode(),), is_json=True, share=0.05)
    sources = tuple(text.encode() for text in named_templates().values() if len(text) < 3000)
    yield "template", Target(_template, sources, share=0.005)


def _chats(template: ChatTemplate, reader: Reader) -> Feed:
    def feed(_: Path, data: bytes) -> None:
        try:
            payload = msgspec.json.decode(data)
        except (ValueError, RecursionError):
            return
        sample = apply(reader, payload) if type(payload) is dict else None
        if isinstance(sample, Sample):
            assert render(sample, template).text

    return feed


def _template(_: Path, data: bytes) -> None:
    template = ChatTemplate("fed", data.decode("utf-8", "replace"), {"bos_token": "<s>", "eos_token": "</s>"}, control=("<s>", "</s>"))
    assert template.variables is not None and template.form and template.ends


def _stores(folder: Path) -> Iterator[tuple[str, Target]]:
    for name, payload in FORMATS.items():
        place = folder / name
        place.mkdir(parents=True)
        payload(place, 1)
        for path in sorted(place.rglob("*")):
            inside = path.relative_to(place)
            if path.is_file() and path.suffix in (".h5", ".json", ".npy", ".jsonl") and path.stat().st_size:
                yield f"store {name} {inside}", Target(_stored(place, inside), (path.read_bytes(),), path.suffix == ".json", 0.01)
    lengths, borders = np.array([3, 4], "<i4"), np.array([0, 1, 2], "<i8")
    index = b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + b"\4" + (2).to_bytes(8, "little") + (3).to_bytes(8, "little")
    index += lengths.tobytes() + np.array([0, 12], "<i8").tobytes() + borders.tobytes()
    data = ("a.bin", np.arange(7, dtype="<i4").tobytes())
    yield "Megatron index", Target(_file("a.idx", _read_store, data), (index,), share=0.05)
    rows = b'{"sequence": [1, 2], "text": "a"}\n{"sequence": [3], "text": "b"}\n'
    yield "store of lines", Target(_file("a.jsonl", _read_store), (rows,), is_json=True, share=0.05)
    yield "store of Parquet", Target(_file("a.parquet", _read_store), (_tables()[0],), share=0.02)


def _read_store(folder: Path) -> None:
    store = load(folder, verify="off")
    for key in store.keys:
        if key in store.data.arrays:
            np.asarray(store.array(key)[:50])
        if store.num_records and (key in store.data.ends or key in store.data.objects):
            store.fetch_record(0, key)


def _stored(store: Path, name: Path) -> Feed:
    def feed(folder: Path, data: bytes) -> None:
        copy = folder / "store"
        if not copy.exists():
            shutil.copytree(store, copy)
        (copy / name).write_bytes(data)
        _read_store(copy)

    return feed


# -- Inputs that are nearly right: sound bytes with a few changed, cut, doubled or swapped; and JSON with a few values or keys changed ----

WORDS = (
    *(b"null", b"-1", b"1e999", b"[]", b"{}", b'""', b"\xff\xfe", b"99999999999999999999", b"true", b'"\\ud800"', b"NaN", b"\0"),
    *(b"[" * 600, b"[" * 30_000, b'{"a":' * 30_000, b"1" * 5000),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 1e308, float("nan"), float("inf"), 2**31, 2**63, 2**64, -(2**63) - 1, 10**400),
    *(
        "",
        " ",
        "a",
        "\0",
        "\ud800",
        "\u202e",
        "\u2028",
        "<think>",
        "</s>",
        "{{",
        "{%",
        "\x1b[31m",
        "a" * 300,
        "-1",
        "1",
        "user",
        "assistant",
    ),
    *([], {}, [[]], [{}], {"": ""}, {"a": None}, [None], [1, "a", None], ["a"] * 50, "x" * 20_000),
)
_DEEPEST = 80


def changed_bytes(data: bytes, chance: random.Random) -> bytes:
    """`data` with one to four changes."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, size = chance.randrange(len(changed) + 1), chance.choice((1, 1, 2, 4, 8, 64))
        match chance.randrange(6):
            case 0:
                changed[at : at + size] = chance.randbytes(size)
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = changed[at : at + size] * chance.choice((1, 2, 50))
            case 3:
                del changed[at:]
            case 4:
                changed[at : at + size] = chance.choice(WORDS)
            case 5 if at < len(changed):
                changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed)


def changed_json(data: bytes, chance: random.Random) -> bytes:
    """JSON, or lines of it, of another content; `data` with some bytes changed where it is none."""
    first, line, rest = data.partition(b"\n") if data.count(b"\n") > 1 and not data.startswith((b"{\n", b"[\n")) else (data, b"", b"")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return changed_bytes(data, chance)
    holder = [value]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        _change(holder, chance)
    return json.dumps(holder[0], ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass") + line + rest


def _change(holder: list[Any], chance: random.Random) -> None:
    """Change one value somewhere in it."""
    at: Any = holder
    for _ in range(_DEEPEST):
        keys = range(len(at)) if isinstance(at, list) else list(at)
        key = chance.choice(keys)
        inner = at[key]
        if not isinstance(inner, list | dict) or not inner or chance.random() < 0.25:
            break
        at = inner
    match chance.randrange(6):
        case 0 | 1:
            at[key] = copy.deepcopy(chance.choice(VALUES))
        case 2 if isinstance(at, dict):
            at[chance.choice((*at, "", "a", "role", "content"))] = at.pop(key)
        case 2 | 3 if at is not holder:
            del at[key]
        case 4 if isinstance(at, list):
            at += [at[key]] * chance.choice((1, 2, 20))
        case 5:
            at[key] = chance.choice(([inner], {"a": inner}, str(inner)[:1000], _other(holder, chance)))
        case _:
            at[key] = copy.deepcopy(chance.choice(VALUES))


def _other(holder: list[Any], chance: random.Random) -> Any:
    """A copy of a value that stands elsewhere."""
    at: Any = holder
    while isinstance(at, list | dict) and at and chance.random() < 0.8:
        at = chance.choice(at if isinstance(at, list) else list(at.values()))
    return json.loads(json.dumps(at))
