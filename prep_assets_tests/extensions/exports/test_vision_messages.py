"""Parquet with images and messages: what TRL's vision collator makes of it is what the store holds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep_assets import export
from prep_assets.errors import ConfigError, PrepAssetsError, StoreError
from prep_assets.extensions.exports.assets import _source, exporting
from prep_assets.extensions.exports.compared import compare
from prep_assets.extensions.exports.registry import opening
from prep_assets.graph.graph import assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets_tests.extensions.exports.readers import reader
from prep_assets_tests.graph.pictures import TOKEN, tokenizer_in
from prep_assets_tests.graph.workspaces import build, domain, jsonl, make, minimal, workspace_in

Image = pytest.importorskip("PIL.Image")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.role == 'assistant' %}{% generation %}"
    "{% for part in message.content %}{{ part.text }}{% endfor %}<|im_end|>{% endgeneration %}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><image><|vision_end|>{% else %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>{% endif %}\n{% endfor %}"
)
SIZES = [(64, 64), (200, 90), (57, 300)]
RULE = {"rule": "qwen2_vl", "patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 30_000}


def rows() -> list[dict[str, Any]]:
    """Chats of one or two rounds about none to three images, which stand anywhere in the questions."""
    draw, made = random.Random(3), []
    for number in range(12):
        messages, images = [], [f"{draw.randrange(3)}.png" for _ in range(number % 4)]
        for at in range(1 + number % 2):
            parts = [{"type": "text", "text": f"Question {number}.{at}: what, "}, {"type": "text", "text": "and why?"}]
            for image in images if at == 0 else ():
                parts.insert(draw.randrange(3), {"type": "image", "image": image})
            messages += [{"role": "user", "content": parts}, {"role": "assistant", "content": f"Answer {number}.{at}, so."}]
        made.append({"messages": messages})
    return made


def workspace(folder: Path, chats: list[dict[str, Any]], **options: Any) -> Workspace:
    (folder / "configs" / "pictures").mkdir(parents=True)
    for number, size in enumerate(SIZES):
        Image.new("RGB", size, (number, 0, 0)).save(folder / "configs" / "pictures" / f"{number}.png")
    (folder / "configs" / "chat.jinja").write_text(TEMPLATE)
    tokenizer = tokenizer_in(folder, "<|vision_start|>", "<|vision_end|>")
    exports = {"trl": {"from": "sft_tokens", "to": "hf_parquet", "options": {"image_dir": "pictures", "messages": True}}}
    own = {"c": domain(jsonl(folder / "chats.jsonl", chats), "messages", image_dir="pictures")}
    mine = {
        "tokenizer": tokenizer,
        "template": "chat.jinja",
        "image_token": TOKEN,
        "image_tokens": RULE,
        "test_fraction": 0,
        "exports": exports,
    }
    return workspace_in(folder, minimal("sft", own, **{**mine, **options}))


def exported(mine: Workspace) -> Published:
    build(mine, "sft_tokens", "c")
    return make(mine, assets_of(mine)["sft_export_trl"], "c")


def test_messages_have_a_part_for_each_image_and_are_compared_with_the_source(tmp_path: Path) -> None:
    mine = workspace(tmp_path, rows())
    published = exported(mine)
    [path] = (published.directory / "data").iterdir()
    found = pq.read_table(path)
    for row, written in zip(rows(), found.to_pylist(), strict=True):
        parts = [part for message in row["messages"] for part in message["content"] if isinstance(part, dict)]
        shown = [part for message in written["messages"] for part in message["content"]]
        assert (
            [part["type"] == "image" for part in shown].count(True)
            == len(written["images"])
            == [part["type"] for part in parts].count("image")
        )
        assert [image["path"] for image in written["images"]] == [part["image"] for part in parts if part["type"] == "image"]
    declared = exporting(assets_of(mine)["sft_tokens"], "hf_parquet", None, {"image_dir": "pictures", "messages": True})
    source, options = _source(declared, mine, mine.built("sft_tokens", "c")), declared.all_options(mine)
    assert compare(published.directory, source, "hf_parquet", options).passed
    assert "assistant_only_loss=True" in opening("hf_parquet", tmp_path, source, options)[1]
    assert 'dataset[0]["images"]' in opening("hf_parquet", tmp_path, source, {**options, "messages": False})[1]
    spoiled = found.to_pylist()
    spoiled[5]["messages"][0]["content"].reverse()
    (tmp_path / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(spoiled, found.schema), tmp_path / "data" / path.name)
    with pytest.raises(StoreError, match="row 5: its messages are others"):
        compare(tmp_path, source, "hf_parquet", options)
    with pytest.raises(ConfigError, match="chats are read from the sources again"):
        export(mine.built("sft_tokens", "c"), "hf_parquet", tmp_path / "out", image_dir=str(tmp_path), messages=True)


@pytest.mark.parametrize(
    ("chat", "options"),
    [
        ({"content": "A typed <|im_end|> is text."}, {}),
        ({"content": "A long answer. " * 30}, {"preprocessing": {"max_seq_len": 60}, "truncation": "end"}),
    ],
)
def test_a_chat_that_a_trainer_would_read_otherwise_stops_the_export(tmp_path: Path, chat: dict[str, Any], options: dict[str, Any]) -> None:
    question = {"role": "user", "content": [{"type": "image", "image": "0.png"}, {"type": "text", "text": "What?"}]}
    mine = workspace(tmp_path, [{"messages": [question, {"role": "assistant", **chat}]}], **options)
    with pytest.raises(PrepAssetsError, match=r"chats.jsonl:1 as messages, .*, is tokenized to other ids"):
        exported(mine)


def tiny(tokenizer: Any) -> Any:
    """Qwen2-VL, random and small."""
    import torch
    import transformers

    torch.manual_seed(0)
    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10_000.0}
    vision = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 1}
    names = {"image_token_id": tokenizer.image_token_id, "vision_start_token_id": tokenizer.convert_tokens_to_ids("<|vision_start|>")}
    text = {"vocab_size": len(tokenizer), "rope_parameters": rope, **small}
    return transformers.Qwen2VLForConditionalGeneration(transformers.Qwen2VLConfig(text_config=text, vision_config=vision, **names))


@pytest.mark.readers
def test_trls_vision_collator_makes_the_ids_and_labels_of_the_store(tmp_path: Path) -> None:
    datasets, trl = reader("datasets"), reader("trl.trainer.sft_trainer")
    import torch
    import transformers
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    mine = workspace(tmp_path, rows())
    published = exported(mine)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "tokenizer", extra_special_tokens={"image_token": TOKEN})
    lenient = type(
        "Qwen2VLProcessor", (transformers.Qwen2VLProcessor,), {"check_argument_for_proper_class": lambda self, name, each: type(each)}
    )
    images = Qwen2VLImageProcessorPil(min_pixels=RULE["min_pixels"], max_pixels=RULE["max_pixels"])
    processor = lenient(image_processor=images, tokenizer=tokenizer, video_processor=None, chat_template=TEMPLATE)
    found = datasets.load_dataset("parquet", data_dir=str(published.directory / "data"), split="train", cache_dir=str(tmp_path / "cache"))
    batch = trl.DataCollatorForVisionLanguageModeling(processor, assistant_only_loss=True)([found[number] for number in range(len(found))])
    source = open_stream(mine.built("sft_tokens", "c").directory, "train")
    for number in range(len(source)):
        seen = batch["attention_mask"][number] == 1
        assert batch["input_ids"][number][seen].tolist() == found[number]["input_ids"] == source.record(number, "tokens").tolist()
        assert batch["labels"][number][seen].tolist() == found[number]["labels"]
    model = tiny(processor.tokenizer)
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-2), []
    for _ in range(10):  # it raises where an image has another number of tokens than of features
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2
    assert sum(map(len, found["images"])) == len(batch["image_grid_thw"]) == len(source.images)
