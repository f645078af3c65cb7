"""Video in chats: from raw rows to exports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from prep_assets import export
from prep_assets.config.models import Sft
from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.compared import compare
from prep_assets.extensions.media.headers import frames_of
from prep_assets.extensions.neighbours.description import tables_of
from prep_assets.extensions.neighbours.hub import features
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_stream, open_table
from prep_assets_tests.extensions.exports.readers import reader
from prep_assets_tests.graph.pictures import TOKEN, film, png, tokenizer_in
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, refusals, resealed, tree, workspace_in

pytest.importorskip("av")
VIDEO = "<|video_pad|>"
BOUNDS = {"merge_size": 2, "temporal_patch_size": 2, "fps": 2, "min_frames": 4, "max_frames": 768}
TIMED = {"rule": "qwen3_vl_video", "patch_size": 16, "min_pixels": 4096, "max_pixels": 25_165_824, **BOUNDS}
PLAIN = {"rule": "qwen2_vl_video", "patch_size": 14, "min_pixels": 3136, "max_pixels": 12_845_056, **BOUNDS, "fps": None}
IMAGES = {"rule": "qwen2_vl", "patch_size": 16, "merge_size": 2, "min_pixels": 4096, "max_pixels": 30_000}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}{% if part.type == 'video' %}"
    "<|vision_start|><|video_pad|><|vision_end|>{% elif part.type == 'image' %}<|vision_start|><image><|vision_end|>{% else %}{{ part.text }}"
    "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
)
FILES = {"a.mp4": (20, 8.0, 96, 64), "b.mp4": (5, 25.0, 160, 120)}
"""Frames, their rate, width and height."""
WRITTEN = {
    "a.mp4": "".join(f"<{time} seconds><|vision_start|>{VIDEO * 6}<|vision_end|>" for time in ("0.3", "1.5", "2.4")),
    "b.mp4": "".join(f"<{time} seconds><|vision_start|>{VIDEO * 20}<|vision_end|>" for time in ("0.0", "0.1")),
}
"""As transformers' Qwen3VLProcessor writes them; the store's place begins behind the first time."""


def said(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": "Seen!"}], **more}


def shows(path: str, **more: Any) -> dict[str, Any]:
    return said([{"type": "video", "video": path, **more}, {"type": "text", "text": "What happens?"}])


ROWS = [
    shows("a.mp4"),
    said("First <video>, then <image> and <video>.", videos=["b.mp4", {"path": "a.mp4", "duration": 2.5}], images=["1.png"]),
    said([{"type": "video"}, {"type": "text", "text": "Who is it?"}], video="b.mp4"),
    said("Nothing to see"),
]
PATHS = [["a.mp4"], ["b.mp4", "1.png", "a.mp4"], ["b.mp4"], []]
Make = Callable[..., Workspace]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    for name, (frames, rate, width, height) in FILES.items():
        film(folder / name, frames, int(rate), width, height)
    for name in ("gaps.avi", "gaps.mkv"):
        film(folder / name, 20, gaps=True)
    film(folder / "unstated.mkv", 20)
    film(folder / "short.mp4", 1)
    (folder / "1.png").write_bytes(png(100, 60))
    (folder / "no.mp4").write_bytes(b"no film")
    (folder / "cut.mp4").write_bytes((folder / "a.mp4").read_bytes()[:-600])
    return folder


@pytest.fixture
def make(tmp_path: Path, films: Path) -> Make:
    def inside(rows: list[Any] = ROWS, **options: Any) -> Workspace:
        (tmp_path / "chat.jinja").write_text(TEMPLATE)
        own = {"c": domain(jsonl(tmp_path / "chats.jsonl", rows), "messages", image_dir=str(films))}
        mine = {"tokenizer": tokenizer_in(tmp_path, VIDEO, "<|vision_start|>", "<|vision_end|>"), "test_fraction": 0}
        mine |= {"template": str(tmp_path / "chat.jinja"), "image_token": TOKEN, "image_tokens": IMAGES}
        mine |= {"video_token": VIDEO, "video_tokens": TIMED, "packing": {"strategy": "ffd", "row_len": 256}}
        return workspace_in(tmp_path, minimal("sft", own, **{**mine, **options}))

    return inside


def test_chats_with_video_and_images(make: Make) -> None:
    workspace = make()
    published = build(workspace, "sft_tokens", "c")
    store, vocabulary = open_stream(published.directory, "train"), workspace.vocabulary(workspace.family(Sft))
    for record, paths in enumerate(PATHS):
        part, ids = store.images.of(record, record + 1), store.record(record, "tokens")
        files = store.images.references(np.arange(part.start, part.stop))
        assert [(file.path, file.size) for file in files] == [(path, FILES.get(path, (100, 60))) for path in paths]
        for path, start, length in zip(paths, store.images.start[part].tolist(), store.images.length[part].tolist(), strict=True):
            expected = WRITTEN.get(path, TOKEN * 6)
            assert (
                vocabulary.decode(ids[start : start + length].tolist()) == expected[expected.find("<|vision_start|>") :] or path == "1.png"
            )
            assert not store.record(record, "loss_mask")[start : start + length].any()
    packed = build(workspace, "sft_packed")
    assert open_stream(packed.directory, "sft_packed").images.kinds == {"video", "image"}
    trials = {trial.mutation: trial for trial in selftest(workspace, published) if trial.mutation}
    wanted = ["an image has a token too many", "another file under the same name", "a file of another resolution or duration"]
    assert all(trials[name].tried and trials[name].passed for name in wanted)
    assert all(trial.passed for trial in trials.values())


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (shows("gone.mp4"), "missing_image"),
        (shows("no.mp4"), "unreadable_video"),
        (shows("cut.mp4"), "unreadable_video"),
        (shows("unstated.mkv"), None),
        (shows("gaps.avi"), "video_frames"),
        (shows("gaps.mkv"), "video_frames"),
        (shows("short.mp4"), "video_length"),
        (shows("https://example.org/a.mp4"), "no_length"),
        (shows("a.mp4", fps=1), "video_resized"),
        (shows("a.mp4", total_pixels=4096), "video_resized"),
        (shows("a.mp4", duration=3), "duration_differs"),
        (shows("a.mp4", duration=2.4), None),
        (said([{"type": "video", "video": ["1.png", "2.png"]}]), "wrong_type"),
        (said("<video>", videos=["a.mp4", "b.mp4"]), "video_count"),
    ],
)
def test_video_that_is_not_as_it_should_be_is_refused(make: Make, row: dict[str, Any], reason: str | None) -> None:
    workspace = make([ROWS[0], row])
    published = build(workspace, "sft_tokens", "c")
    assert [refusal.reason for refusal in refusals(published)] == ([reason] if reason else [])


def test_without_a_token_video_is_refused_and_without_a_rule_nothing_is_built(make: Make) -> None:
    published = build(make(video_token=None, video_tokens=None), "sft_tokens", "c")
    assert [refusal.reason for refusal in refusals(published)] == ["no_video_token"] * 3
    for options, says in (
        ({"video_tokens": None}, "video_token: needs video_tokens"),
        ({"video_token": None}, "video_tokens: .* has no effect here: records with video are refused"),
        ({"video_tokens": IMAGES}, "needs a rule, one of processor, fixed, qwen2_vl_video, qwen3_vl_video"),
        ({"video_token": TOKEN}, "image_token and video_token are both '<image>'"),
        ({"video_tokens": {**TIMED, "end": "</v>"}}, "video_tokens: qwen3_vl_video writes '</v>', no control token"),
    ):
        with pytest.raises(ConfigError, match=says.replace("|", r"\|")):
            build(make(**options), "sft_tokens", "c")


@pytest.mark.parametrize(
    ("before", "after", "caught"),
    [
        ('"frames": 20', '"frames": 21', ["row_integrity"]),
        ('"fps": 8.0', '"fps": 4.0', ["row_integrity"]),
        ('"kind": "video", "frames": 20, "fps": 8.0, ', "", ["row_integrity"]),
    ],
)
def test_a_reference_that_is_not_the_files_is_caught(make: Make, before: str, after: str, caught: list[str]) -> None:
    """A length that is not the file's, though it gives as many tokens; a video as an image."""
    workspace = make()
    published = build(workspace, "sft_tokens", "c")
    lines = published.directory / "train.images" / "images.jsonl"
    lines.write_text(lines.read_text().replace(before, after))
    np.save(lines.parent / "end.npy", np.cumsum([len(line) + 1 for line in lines.read_text().splitlines()]))
    assert failing(workspace, resealed(published)) == caught


def test_a_time_that_is_not_the_films_is_caught(make: Make, tmp_path: Path) -> None:
    """The store says that the second pair of frames is seen at 1.6 seconds."""
    workspace = make()
    published = build(workspace, "sft_tokens", "c")
    encode = Tokenizer.from_file(f"{tmp_path}/tokenizer/tokenizer.json").encode
    right, wrong = (encode(f"<{time} seconds>", add_special_tokens=False).ids for time in ("1.5", "1.6"))
    [path] = published.directory.rglob("sequence.bin")
    tokens = np.fromfile(path, np.int32)
    [first, *_] = np.flatnonzero([tokens[at : at + len(right)].tolist() == right for at in range(len(tokens))])
    tokens[first : first + len(wrong)] = wrong
    tokens.tofile(path)
    assert "tokenization_identity" in failing(workspace, resealed(published))


@pytest.mark.parametrize("format", ["webdataset", "mds", "hf_parquet"])
def test_exports_have_the_files(make: Make, films: Path, tmp_path: Path, format: str) -> None:
    published = build(make(), "sft_tokens", "c")
    options: dict[str, Any] = {"image_dir": str(films)}
    out = export(published, format, tmp_path / "out", stream="train", **options)
    filled = {"split": "train", "rows_per_file": 10_000, "size_limit": 1 << 26, **options}
    assert compare(out, open_table(published.directory, "train"), format, filled).passed
    content = b"".join(tree(out).values())
    assert format == "hf_parquet" or all(content.count((films / name).read_bytes()) == 2 for name in FILES)
    for other in ("cerebras", "hf_arrow"):
        with pytest.raises(ConfigError, match="would lose 5 images and videos"):
            export(published, other, tmp_path / other, stream="train")


@pytest.mark.soak
def test_a_model_trains_on_what_an_export_has(make: Make, films: Path, tmp_path: Path) -> None:
    """Qwen2-VL, tiny: it raises where a video has another number of tokens than of features."""
    import torch
    import transformers

    workspace = make([row for row in ROWS if "images" not in row][:2], video_tokens=PLAIN)
    published = build(workspace, "sft_tokens", "c")
    control = workspace.vocabulary(workspace.family(Sft)).control
    out = export(published, "hf_parquet", tmp_path / "out", stream="train", image_dir=str(films))
    torch.manual_seed(0)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    text = {
        "vocab_size": workspace.vocabulary(workspace.family(Sft)).size,
        **small,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]},
    }
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "mlp_ratio": 1, "patch_size": 14}
    config = transformers.Qwen2VLConfig(
        text_config=text, vision_config=vision, video_token_id=control[VIDEO], image_token_id=control[TOKEN]
    )
    model = transformers.Qwen2VLForConditionalGeneration(config)
    optimizer, losses = torch.optim.AdamW(model.parameters(), 3e-2), []
    batches = [row for path in (out / "data").iterdir() for row in pq.read_table(path).to_pylist()]
    grids = {(films / name).read_bytes(): grid for name, grid in (("a.mp4", (10, 4, 6)), ("b.mp4", (3, 8, 12)))}
    for step in range(10):
        row = batches[step % len(batches)]
        [grid] = [grids[video["bytes"]] for video in row["videos"]]
        seen = {"pixel_values_videos": torch.full((int(np.prod(grid)), 1176), 0.1), "video_grid_thw": torch.tensor([grid])}
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
        kinds = (ids == control[VIDEO]).int() * 2
        loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels, mm_token_type_ids=kinds, **seen).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 1
    with pytest.raises(ValueError, match="Video features and video tokens do not match"):
        model(input_ids=torch.where(ids == control[VIDEO], 0, ids), **seen)


def test_frames_are_those_that_transformers_reads(films: Path) -> None:
    from transformers.video_utils import read_video_pyav

    for name, size in FILES.items():
        _, metadata = read_video_pyav(str(films / name), lambda metadata, **_: [0, metadata.total_num_frames - 1])
        assert frames_of(films / name) == size == (metadata.total_num_frames, metadata.fps, metadata.width, metadata.height)


@pytest.mark.readers
def test_datasets_and_webdataset_read_the_video(make: Make, films: Path, tmp_path: Path) -> None:
    published = build(make(), "sft_tokens", "c")
    out = export(published, "hf_parquet", tmp_path / "parquet", stream="train", image_dir=str(films))
    datasets = reader("datasets")
    found = datasets.load_dataset("parquet", data_dir=str(out / "data"), split="train", cache_dir=str(tmp_path / "cache"))
    assert found.features["videos"] == datasets.List(datasets.Video())
    [table] = tables_of(out, [path.relative_to(out).as_posix() for path in (out / "data").iterdir()])
    assert features(table.columns) == found.features._to_yaml_list()
    undecoded = found.cast_column("videos", datasets.List(datasets.Video(decode=False))).remove_columns("images")
    for row, paths in zip(undecoded, PATHS, strict=True):
        assert [video["bytes"] for video in row["videos"]] == [(films / path).read_bytes() for path in paths if path != "1.png"]
    out = export(published, "webdataset", tmp_path / "tars", stream="train", image_dir=str(films))
    for sample, paths in zip(reader("webdataset").WebDataset(str(out / "train-000000.tar"), shardshuffle=False), PATHS, strict=True):
        listed = json.loads(sample["json"]).get("images", [])
        assert [sample[file["file"]] for file in listed] == [(films / path).read_bytes() for path in paths]
