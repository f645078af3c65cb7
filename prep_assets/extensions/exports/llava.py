"""Chats and the files of their images for trainers that read LLaVA's JSON: LLaVA, and Qwen-VL's fine-tuning code.

    <split>.json                        [{"id": "0", "image": path, "conversations": [{"from": "human", "value": "<image>\\nWhat?"}, …]}, …]
    images/<2 digits>/<sha256>.png      each file once, however many chats show it; ``image`` is a list where a chat has several

Both render, tokenize and mask by themselves. A row of which they would read another chat, or train other tokens than the store, stops the export.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.blocks import Block, row_blocks
from prep_assets.extensions.exports.media import file_of, placed_images, require_images
from prep_assets.extensions.exports.readable import Options, Readable, Tokens
from prep_assets.extensions.exports.registry import Folder, Progress, Split, exporter, reads
from prep_assets.samples import ASSISTANT, IMAGE, TEXT, USER
from prep_assets.stores.images import Image
from prep_assets.stores.table import TOKENS, Table
from prep_assets.stores.verification import WrittenFile

MARKS = ("<image>", "<video>")
SPEAKERS = {USER: "human", ASSISTANT: "gpt"}
HEADER, STOP = 77091, 151645
"""``assistant`` and ``<|im_end|>`` in Qwen's vocabulary, by whose ids its loader finds answers (``qwenvl/data/data_processor.py``)."""
Parts = Sequence[Mapping[str, str]]


@exporter(
    "llava",
    TOKENS,
    read_by="LLaVA, Qwen-VL",
    readers={"llava": "LLaVA", "qwen_vl": "Qwen-VL"},
    opens={
        "llava": ("--data_path {folder}/{split}.json", "--image_folder {folder}", "--lazy_preprocess True"),
        "qwen_vl": (
            "from qwenvl.data import data_dict  # --dataset_use mine, and the --min_pixels and --max_pixels of image_tokens",
            'data_dict["mine"] = {{"annotation_path": "{folder}/{split}.json", "data_path": "{folder}"}}',
        ),
    },
    images=(IMAGE,),
    chats=True,
    kind="json",
)
def llava(
    source: Table,
    out: Path,
    progress: Progress,
    *,
    layout: Literal["llava", "qwen_vl"] = "llava",
    image_dir: Folder | None = None,
    split: Split = "train",
) -> None:
    """``<split>.json``: an array of ``{id, image, conversations}``, and ``images/`` with each file by its sha256.

    `layout` says whose loader reads it: LLaVA's opens one image a row, which it puts before the text of its turn; Qwen-VL's any number, anywhere in
    questions. `image_dir` is the folder that paths of images are relative to.
    """
    if source.chats is None:
        raise ConfigError("export 'llava': chats are read from the sources again. Use prep-assets export, or exports of sft.yaml")
    require_images(source, image_dir, "llava")
    chats, number = source.chats(), 0
    with WrittenFile(out / f"{split}.json") as file:
        file.write(b"[")
        for block in row_blocks(source, progress):
            shown = placed_images(source.images, number, block.done)
            for ids, trained in _records(block):
                chat = next(chats)
                if fault := _fault(chat, layout) or (_of_llava(chat, trained) if layout == "llava" else _of_qwen(ids, trained)):
                    raise ConfigError(f"export 'llava', layout {layout!r}, row {number:,}: {fault}. Leave it out of the domain")
                files = [_place(image, out, image_dir) for image, *_ in shown.get(number, [])]
                named = {"image": files[0] if len(files) == 1 else files} if files else {}
                turns = [{"from": SPEAKERS[message["role"]], "value": "\n".join(map(_value, message["content"]))} for message in chat]
                line = json.dumps({"id": str(number), **named, "conversations": turns}, ensure_ascii=False)
                file.write(f"{',' if number else ''}\n{line}".encode())
                number += 1
        file.write(b"\n]\n")


def _records(block: Block) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]]:
    cuts = np.cumsum(block.row_lengths)[:-1]
    return zip(np.split(block.tokens, cuts), np.split(block.trained, cuts), strict=True)


def _value(part: Mapping[str, str]) -> str:
    return MARKS[0] if part["type"] == IMAGE else part["text"]


def _fault(chat: Sequence[Mapping[str, Any]], layout: str) -> str:
    """Why a loader would read another chat; empty where it reads this one."""
    roles = [message["role"] for message in chat]
    if len(roles) % 2 or roles != [USER, ASSISTANT] * (len(roles) // 2):
        return f"its turns are {', '.join(roles)}. A user turn and an answer alternate: Qwen-VL's loader trains all others as answers"
    if typed := next((mark for message in chat for part in message["content"] for mark in MARKS if mark in part.get("text", "")), ""):
        return f"{typed!r} is typed in a text, and the loader takes it for a file"
    if any(part["type"] != TEXT for message in chat if message["role"] == ASSISTANT for part in message["content"]):
        return "an answer has an image, which loaders look for in questions"
    questions = [message["content"] for message in chat if message["role"] == USER]
    if loose := next(
        (text for parts in questions for part in parts if (text := part.get("text")) is not None and text.strip() != text), ""
    ):
        return f"{loose[:80]!r} begins or ends with white space, which the loader strips"
    places = [at for parts in questions for at, part in enumerate(parts) if part["type"] == IMAGE]
    if layout == "llava" and (len(places) > 1 or any(places)):
        return "it has several images, or one after a text: LLaVA's loader opens one and puts it first. Take layout 'qwen_vl'"
    return ""


def _of_llava(chat: Sequence[Any], trained: npt.NDArray[np.bool_]) -> str:
    stretches = int(np.count_nonzero(np.diff(trained, prepend=False) & trained))
    if stretches == len(chat) // 2:
        return ""
    return f"it has {len(chat) // 2} answers and {stretches} trained stretches, and the loader trains each answer"


def _of_qwen(ids: npt.NDArray[Any], trained: npt.NDArray[np.bool_]) -> str:
    """How the loader's labels differ. It trains from two tokens after ``assistant`` to the token after ``<|im_end|>``, a line break, which may differ."""
    stops, taken = np.flatnonzero(ids == STOP), np.zeros(len(ids), bool)
    done = 0
    for start in np.flatnonzero(ids == HEADER).tolist():
        at = int(np.searchsorted(stops, start + 2))
        if start >= done and at < len(stops):
            done = int(stops[at]) + 1
            taken[start + 2 : done] = True
    differ = taken != trained
    differ[stops[stops + 1 < len(ids)] + 1] = False
    if not differ.any():
        return ""
    at = int(np.argmax(differ))
    return (
        f"the loader {'trains' if taken[at] else 'does not train'} token {at} ({ids[at]}), and the store does otherwise. It takes all between "
        f"{HEADER} (assistant) and {STOP} (<|im_end|>) for answers, in questions too"
    )


def _place(image: Image, out: Path, folder: str | None) -> str:
    """Copy the file of an image to its place, unless it is there. Return the place."""
    name = f"{image.sha256}{PurePosixPath(image.path).suffix.lower()}"
    path = out / "images" / name[:2] / name
    if image.sha256 is None or not path.exists():
        data = file_of(image, folder, "llava")
        path.parent.mkdir(parents=True, exist_ok=True)
        with WrittenFile(path) as file:
            file.write(data)
    return path.relative_to(out).as_posix()


@reads("llava")
def read_llava(folder: Path, source: Table, options: Options) -> Readable:
    """Open a `llava` export with code independent of its writer: turns are cut at their marks, as both loaders do. A chat that is that of the source has
    the ids of the store, or the source does not give it.

    Raises:
        StoreError: a row has another chat, or an image with another sha256.
    """
    assert source.chats is not None
    rows: list[dict[str, Any]] = json.loads((folder / f"{options['split']}.json").read_text("utf-8"))
    chats = enumerate(source.chats())

    def row(number: int) -> tuple[Tokens]:
        named = rows[number].get("image", [])
        files = [named] if isinstance(named, str) else list(named)
        stored = source.images.references(np.flatnonzero(np.asarray(source.images.record) == number))
        for file, image in zip(files, stored, strict=False):
            if hashlib.sha256((folder / file).read_bytes()).hexdigest() != image.sha256:
                raise StoreError(f"row {number}: {file!r} is another file than {image.path!r} of the store")
        read: list[dict[str, Any]] = [
            {"role": "user" if turn["from"] == "human" else "assistant", "content": _cut(turn)} for turn in rows[number]["conversations"]
        ]
        places = sum(part["type"] == "image" for message in read for part in message["content"])
        if read != next((chat for at, chat in chats if at == number), None) or not len(files) == places == len(stored):  # rows ascend
            raise StoreError(f"row {number}: its conversation is another than that of its source")
        return (Tokens(next(source.sequences(number))[1]),)

    return Readable(len(rows), row)


def _cut(turn: Mapping[str, str]) -> list[dict[str, str]]:
    if turn["from"] != "human":
        return [{"type": "text", "text": turn["value"]}]
    texts = (text if text == "<image>" else text.strip() for text in re.split("(<image>)", turn["value"]))
    return [{"type": "image"} if text == "<image>" else {"type": "text", "text": text} for text in texts if text]
