"""Audio in chats, alone and beside images: from raw rows to exports."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep_assets import export
from prep_assets.config.models import Sft
from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.compared import compare
from prep_assets.extensions.neighbours.description import tables_of
from prep_assets.extensions.neighbours.hub import features
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import Table, open_stream, open_table
from prep_assets_tests.extensions.exports.readers import reader
from prep_assets_tests.graph.pictures import TOKEN, png, tokenizer_in
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, refusals, resealed, tree, workspace_in

soundfile = pytest.importorskip("soundfile")
AUDIO = "<|AUDIO|>"
RULE = {"rule": "mel_frames", "sampling_rate": 16_000, "hop_length": 160, "chunk_length": 2}
IMAGES = {"rule": "qwen2_vl", "patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 30_000}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}{% if part.type == 'audio' %}"
    "Audio: <|audio_bos|><|AUDIO|><|audio_eos|>\n{% elif part.type == 'image' %}<|vision_bos|><image><|vision_eos|>{% else %}{{ part.text }}"
    "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
)
AROUND = ("<|audio_bos|>", "<|audio_eos|>", "<|vision_bos|>", "<|vision_eos|>")
FILES = {
    "a.wav": (16_000, 16_000),
    "b.flac": (4_410, 44_100),
    "c.ogg": (24_000, 48_000),
    "long.wav": (32_001, 16_000),
    "short.wav": (320, 16_000),
}
COUNTS = {"a.wav": 25, "b.flac": 2, "c.ogg": 12}
"""As Qwen2-Audio counts: 100, 10 and 50 frames, halved by a convolution and a pooling."""


def asks(*parts: Any, **more: Any) -> dict[str, Any]:
    """A row: paths of audio and images, and texts, in a question."""

    def part(value: Any) -> Any:
        if isinstance(value, dict) or "." not in value:
            return value if isinstance(value, dict) else {"type": "text", "text": value}
        kind = "image" if value.endswith("png") else "audio"
        return {"type": kind, kind: value}

    return said([part(value) for value in parts], **more)


def said(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": "Heard!"}], **more}


ROWS = [
    asks("a.wav", "What is said"),
    asks("Compare ", "b.flac", " with ", "1.png", " and ", "a.wav"),
    {
        "messages": [{"role": "user", "content": "<audio>Who <audio>?"}, {"role": "assistant", "content": "They"}],
        "audios": ["c.ogg", {"path": "a.wav", "duration": 1}],
    },
    {
        "messages": [
            {"role": "user", "content": [{"type": "audio"}, {"type": "text", "text": "?"}]},
            {"role": "assistant", "content": "It"},
        ],
        "audio": "b.flac",
    },
    asks("Nothing to hear"),
]
PATHS = [["a.wav"], ["b.flac", "1.png", "a.wav"], ["c.ogg", "a.wav"], ["b.flac"], []]
Make = Callable[..., Workspace]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def inside(rows: list[Any] = ROWS, **options: Any) -> Workspace:
        folder = tmp_path / "files"
        folder.mkdir(exist_ok=True)
        for name, (samples, rate) in FILES.items():
            soundfile.write(folder / name, np.sin(np.arange(samples) / 9), rate)
        (folder / "1.png").write_bytes(png(100, 60))
        (folder / "no.wav").write_bytes(b"no sound")
        (tmp_path / "chat.jinja").write_text(TEMPLATE)
        own = {"c": domain(jsonl(tmp_path / "chats.jsonl", rows), "messages", image_dir=str(folder))}
        mine = {"tokenizer": tokenizer_in(tmp_path, AUDIO, *AROUND), "template": str(tmp_path / "chat.jinja"), "test_fraction": 0}
        mine |= {"image_token": TOKEN, "image_tokens": IMAGES, "audio_token": AUDIO, "audio_tokens": RULE}
        mine |= {"packing": {"strategy": "ffd", "row_len": 128}}
        return workspace_in(tmp_path, minimal("sft", own, **{**mine, **options}))

    return inside


def placed(store: Table, record: int) -> list[tuple[str, tuple[Any, ...] | None, int, int]]:
    """Path, size and number of tokens of each file of a record, and the id that stands for it."""
    part, ids = store.images.of(record, record + 1), store.record(record, "tokens")
    images = store.images.references(np.arange(part.start, part.stop))
    places = zip(store.images.start[part].tolist(), store.images.length[part].tolist(), strict=True)
    found = [
        (image.path, image.size, {*ids[start : start + length].tolist()}, length)
        for image, (start, length) in zip(images, places, strict=True)
    ]
    assert all(len(kinds) == 1 for _, _, kinds, _ in found)
    return [(path, size, length, kinds.pop()) for path, size, kinds, length in found]


def test_chats_with_audio_and_images(make: Make) -> None:
    workspace = make()
    published = build(workspace, "sft_tokens", "c")
    store = open_stream(published.directory, "train")
    control = workspace.vocabulary(workspace.family(Sft)).control
    for record, paths in enumerate(PATHS):
        found = placed(store, record)
        assert [path for path, *_ in found] == paths
        for path, size, count, token in found:
            assert token == control[TOKEN if path == "1.png" else AUDIO]
            assert (size, count) == ((100, 60), 8) if path == "1.png" else (size, count) == (FILES[path], COUNTS[path])
    lines = [json.loads(line) for line in (published.directory / "train.images" / "images.jsonl").read_text().splitlines()]
    assert [line.get("kind", "image") for line in lines] == ["audio", "audio", "image", "audio", "audio", "audio", "audio"]
    assert {(line["samples"], line["sampling_rate"]) for line in lines if line["path"] == "a.wav"} == {(16_000, 16_000)}
    packed = build(workspace, "sft_packed")
    assert open_stream(packed.directory, "sft_packed").images.kinds == {"audio", "image"}
    trials = {trial.mutation: trial for trial in selftest(workspace, published) if trial.mutation}
    wanted = ["an image has a token too many", "another file under the same name", "a file of another resolution or duration"]
    assert all(trials[name].tried and trials[name].passed for name in wanted)
    assert all(trial.passed for trial in trials.values())


UNHEARD = [
    (asks("long.wav", "q"), "audio_length"),
    (asks("short.wav", "q"), "audio_length"),
    (asks("gone.wav", "q"), "missing_image"),
    (asks("no.wav", "q"), "unreadable_audio"),
    (asks("https://example.org/a.wav", "q"), "no_length"),
    (asks({"type": "audio", "audio": "a.wav", "duration": 1.2}, "q"), "duration_differs"),
    (asks({"type": "audio", "audio": "a.wav", "duration": 0.97}, "q"), None),
    (asks(f"typed {AUDIO}", "a.wav"), None),
]


def test_audio_that_is_not_as_it_should_be_is_refused(make: Make) -> None:
    workspace = make([ROWS[0], *(row for row, _ in UNHEARD)])
    published = build(workspace, "sft_tokens", "c")
    bad = [(f"chats.jsonl:{number}", reason) for number, (_, reason) in enumerate(UNHEARD, 2) if reason]
    assert [(refusal.id, refusal.reason) for refusal in refusals(published)] == bad


def test_a_template_that_writes_audio_first_cannot_have_both(make: Make, tmp_path: Path) -> None:
    """It would say of an image what is said of audio."""
    head, audio, rest = TEMPLATE.partition("Audio: <|audio_bos|><|AUDIO|><|audio_eos|>\n")
    loop = "{% for part in message.content %}"
    first = head.replace(loop, f"{loop}{{% if part.type == 'audio' %}}{audio}{{% endif %}}{{% endfor %}}{loop}")
    (tmp_path / "first.jinja").write_text(first + rest)
    published = build(make([*ROWS[:1], asks("1.png", " and ", "a.wav")], template=str(tmp_path / "first.jinja")), "sft_tokens", "c")
    [refusal] = refusals(published)
    assert refusal.reason == "template_drops_content" and "or in another order" in refusal.detail


def test_without_a_token_audio_is_refused_and_without_a_rule_nothing_is_built(make: Make) -> None:
    published = build(make(audio_token=None, audio_tokens=None), "sft_tokens", "c")
    assert [refusal.reason for refusal in refusals(published)] == ["no_audio_token"] * 4
    for options, says in (
        ({"audio_tokens": None}, "audio_token: needs audio_tokens"),
        ({"audio_token": None}, "audio_tokens: .* has no effect here: records with audio are refused"),
        ({"audio_tokens": IMAGES}, "needs a rule, one of processor, fixed, mel_frames"),
        ({"image_tokens": RULE}, "needs a rule, one of processor, fixed, qwen2_vl"),
        ({"audio_token": TOKEN}, "image_token and audio_token are both '<image>'"),
        ({"audio_token": "Hi"}, "audio_token 'Hi' is no control token"),
    ):
        with pytest.raises(ConfigError, match=says):
            build(make(**options), "sft_tokens", "c")


@pytest.mark.parametrize(
    ("before", "after"),
    [('"samples": 16000', '"samples": 16001'), ('"kind": "audio", "samples": 16000, "sampling_rate"', '"width": 16000, "height"')],
)
def test_a_reference_that_is_not_the_files_is_caught(make: Make, before: str, after: str) -> None:
    """A duration that is not the file's, though it gives as many tokens; audio as an image."""
    workspace = make()
    published = build(workspace, "sft_tokens", "c")
    lines = published.directory / "train.images" / "images.jsonl"
    lines.write_text(lines.read_text().replace(before, after))
    np.save(lines.parent / "end.npy", np.cumsum([len(line) + 1 for line in lines.read_text().splitlines()]))
    assert "row_integrity" in failing(workspace, resealed(published))


@pytest.mark.parametrize("format", ["webdataset", "mds", "hf_parquet", "hf_arrow"])
def test_exports_have_the_files(make: Make, tmp_path: Path, format: str) -> None:
    published = build(make(), "sft_tokens", "c")
    options: dict[str, Any] = {"image_dir": str(tmp_path / "files"), **({"layout": "llama_factory"} if format == "hf_arrow" else {})}
    out = export(published, format, tmp_path / "out", stream="train", **options)
    filled = {"split": "train", "rows_per_file": 10_000, "size_limit": 1 << 26, **options}
    assert compare(out, open_table(published.directory, "train"), format, filled).passed
    content = b"".join(tree(out).values())
    assert format.startswith("hf_") or all(
        content.count((tmp_path / "files" / name).read_bytes()) == [*chain(*PATHS)].count(name) for name in COUNTS
    )
    if format == "hf_arrow":
        [path] = (out / "train").glob("*.arrow")
        found = pa.ipc.open_stream(path.read_bytes()).read_all().to_pylist()
        heard = [[f"{tmp_path}/files/{path}" for path in paths if path != "1.png"] or None for paths in PATHS]
        assert [row["audios"] for row in found] == heard
        assert [row["images"] for row in found] == [[f"{tmp_path}/files/1.png"] if "1.png" in paths else None for paths in PATHS]
        found[1]["audios"].reverse()
        shutil.copytree(out, tmp_path / "spoiled")
        spoiled = pa.Table.from_pylist(found)
        with pa.ipc.new_stream(tmp_path / "spoiled" / "train" / path.name, spoiled.schema) as writer:
            writer.write_table(spoiled)
        assert "row 1: has the images" in compare(tmp_path / "spoiled", open_table(published.directory, "train"), format, filled).summary
    for other in ("cerebras", "nanotron"):
        with pytest.raises(ConfigError, match="would lose 7 audios and images"):
            export(published, other, tmp_path / other, stream="train")


@pytest.mark.soak
def test_a_model_trains_on_what_an_export_has(make: Make, tmp_path: Path) -> None:
    """Qwen2-Audio, tiny: it raises where audio has another number of tokens than of features."""
    import torch
    import transformers

    workspace = make([row for row, paths in zip(ROWS, PATHS, strict=True) if paths and "1.png" not in paths])
    published = build(workspace, "sft_tokens", "c")
    vocabulary = workspace.vocabulary(workspace.family(Sft))
    out = export(published, "hf_parquet", tmp_path / "out", stream="train", image_dir=str(tmp_path / "files"))
    torch.manual_seed(0)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    encoder = {
        "d_model": 16,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "num_mel_bins": 8,
        "max_source_positions": 100,
    }
    text = {"model_type": "qwen2", "vocab_size": vocabulary.size, **small}
    config = transformers.Qwen2AudioConfig(audio_config=encoder, text_config=text, audio_token_index=vocabulary.control[AUDIO])
    model, extractor = (
        transformers.Qwen2AudioForConditionalGeneration(config),
        transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=2),
    )
    optimizer, losses = torch.optim.AdamW(model.parameters(), 3e-2), []

    def heard(content: bytes) -> Any:
        samples, rate = soundfile.read(io.BytesIO(content))
        count = -(-len(samples) * 16_000 // rate)
        return np.interp(np.arange(count) * rate / 16_000, np.arange(len(samples)), samples)

    batches = [row for path in (out / "data").iterdir() for row in pq.read_table(path).to_pylist()]
    for step in range(10):
        row = batches[step % len(batches)]
        heard_all = [heard(audio["bytes"]) for audio in row["audios"]]
        features = extractor(heard_all, sampling_rate=16_000, padding="max_length", return_attention_mask=True, return_tensors="pt")
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
        sound = {"input_features": features["input_features"], "feature_attention_mask": features["attention_mask"]}
        loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels, **sound).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 1
    with pytest.raises(ValueError, match="Audio features and audio tokens do not match"):
        model(input_ids=ids[:, ids[0].tolist().index(config.audio_token_index) + 1 :], **sound)


@pytest.mark.readers
def test_datasets_and_webdataset_read_the_audio(make: Make, tmp_path: Path) -> None:
    published = build(make(), "sft_tokens", "c")
    folder = tmp_path / "files"
    out = export(published, "hf_parquet", tmp_path / "parquet", stream="train", image_dir=str(folder))
    datasets = reader("datasets")
    found = datasets.load_dataset("parquet", data_dir=str(out / "data"), split="train", cache_dir=str(tmp_path / "cache"))
    assert found.features["audios"] == datasets.List(datasets.Audio()) and found.features["images"] == datasets.List(datasets.Image())
    [table] = tables_of(out, [path.relative_to(out).as_posix() for path in (out / "data").iterdir()])
    assert features(table.columns) == found.features._to_yaml_list()
    undecoded = found.cast_column("audios", datasets.List(datasets.Audio(decode=False))).remove_columns("images")
    for row, paths in zip(undecoded, PATHS, strict=True):
        assert [audio["bytes"] for audio in row["audios"]] == [(folder / path).read_bytes() for path in paths if path != "1.png"]
    out = export(published, "webdataset", tmp_path / "tars", stream="train", image_dir=str(folder))
    for sample, paths in zip(reader("webdataset").WebDataset(str(out / "train-000000.tar"), shardshuffle=False), PATHS, strict=True):
        listed = json.loads(sample["json"]).get("images", [])
        assert [file["path"] for file in listed] == paths
        assert [sample[file["file"]] for file in listed] == [(folder / path).read_bytes() for path in paths]
