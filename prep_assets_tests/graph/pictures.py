"""Workspaces whose records hold images."""

from __future__ import annotations

import hashlib
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from prep_assets.stores.table import Table
from prep_assets_tests.graph.workspaces import TOKENIZER

TOKEN = "<image>"
AROUND = (
    *("<img>", "</img>", "<start_of_image>", "<end_of_image>", "<fake_token_around_image>", "<global-img>", "<|vision_start|>"),
    *("<|vision_end|>",),
)
PLACES = tuple(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5))


def tokenizer_in(folder: Path, *more: str) -> str:
    """The shipped tokenizer with an image token, and with `more` control tokens."""
    if not (folder / "tokenizer").is_dir():
        shutil.copytree(TOKENIZER, folder / "tokenizer")
        backend = Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
        backend.add_special_tokens([TOKEN, *more])
        backend.save(str(folder / "tokenizer" / "tokenizer.json"))
    return str(folder / "tokenizer")


def pictures_in(folder: Path, *names: str) -> Path:
    """A folder with files that look like no picture at all: nobody opens them."""
    for name in names:
        path = folder / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"content of {name}".encode())
    return folder / "pictures"


def png(width: int, height: int, *, orientation: int = 1) -> bytes:
    """The header of a picture of any size, and not one of its pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    exif = b"II*\0" + struct.pack("<IHHHIII", 8, 1, 0x0112, 3, 1, orientation, 0)
    parts = [
        chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        chunk(b"eXIf", exif),
        chunk(b"IDAT", b""),
        chunk(b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def film(path: Path, frames: int, rate: int = 8, width: int = 96, height: int = 64, gaps: bool = False) -> None:
    """A video of grey frames; with `gaps`, each third frame is shown four times as long."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(np.full((height, width, 3), number * 9 % 256, np.uint8), format="rgb24")
            frame.pts = number + number // 3 * 3 * gaps
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def chat(text: str, *images: str, answer: str = "I see it.") -> dict[str, Any]:
    """A row for the schema ``messages``, whose text has a mark for each image."""
    return {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": answer}], "images": list(images)}


def digest(name: str) -> str:
    """The hash of a picture that `pictures_in` makes."""
    return hashlib.sha256(f"content of {name}".encode()).hexdigest()


def listed(store: Table) -> list[tuple[int, int, int, str, str | None]]:
    """Record, start, length, path and digest of each image of a store."""
    columns = (store.images.record.tolist(), store.images.start.tolist(), store.images.length.tolist())
    images = store.images.references(np.arange(len(store.images)))
    return [(*place, image.path, image.sha256) for *place, image in zip(*columns, images, strict=True)]
