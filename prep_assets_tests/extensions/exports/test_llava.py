"""LLaVA's JSON: what LLaVA's and Qwen-VL's own loaders make of it is what the store holds, and what they would read otherwise stops the export."""

from __future__ import annotations

import hashlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from prep_assets import export
from prep_assets.errors import ConfigError, PrepAssetsError, StoreError
from prep_assets.extensions.exports.assets import _source, exporting
from prep_assets.extensions.exports.compared import compare
from prep_assets.extensions.exports.registry import opening
from prep_assets.graph.graph import asset_named, assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets_tests.extensions.distillation.test_distilled import checkout
from prep_assets_tests.extensions.exports.readers import bypass, stand_in
from prep_assets_tests.extensions.exports.test_vision_messages import RULE, SIZES
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, jsonl, make, minimal, workspace_in

Image = pytest.importorskip("PIL.Image")
QWEN = {
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|vision_start|>": 151652,
    "<|vision_end|>": 151653,
    "<|image_pad|>": 151655,
    "<|video_pad|>": 151656,
}
"""Qwen's control tokens, whose ids its loader and its rotary positions have in their code."""
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}{% if part.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = (
    "{% for message in messages %}<|im_start|>{{ message.role + '\n' + message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def qwens(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The shipped tokenizer with Qwen's ids of ``assistant`` and of its control tokens; words that no text has fill the rest."""
    data = json.loads(Path(TOKENIZER, "tokenizer.json").read_text())
    config = json.loads(Path(TOKENIZER, "tokenizer_config.json").read_text())
    vocabulary = {f"[[{at}]]" if word in QWEN else word: at for word, at in data["model"]["vocab"].items()}
    named = {77091: "assistant", **{number: word for word, number in QWEN.items()}}
    vocabulary |= {named.get(at, f"[[{at}]]"): at for at in range(len(vocabulary), 151657)}
    data["model"] |= {"vocab": vocabulary, "ignore_merges": True}
    ordinary, special = data["added_tokens"][0], [token for token in data["added_tokens"] if token["content"] not in QWEN]
    data["added_tokens"] = [*special, *({**ordinary, "content": word, "id": number} for word, number in QWEN.items())]
    config["extra_special_tokens"] = config.pop("additional_special_tokens", [])
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "tokenizer.json").write_text(json.dumps(data))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder)


def ask(*parts: str | int, answer: str = "It is so.") -> list[dict[str, Any]]:
    """A question, in which a number is an image, and its answer."""
    content = [{"type": "image", "image": f"{part}.png"} if isinstance(part, int) else {"type": "text", "text": part} for part in parts]
    return [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]


CHATS = [
    ask(0, "What is it?"),
    ask("Without a picture:\n  why?", answer=" Space around.\n"),
    [*ask(1, "And the assistant?"), *ask("More?")],
    [*ask(2), *ask("And here?")],
]
ANYWHERE = [*CHATS, ask("Left", 0, 1, "and right:", 2), [*ask("First", 1), *ask(1, 2, "Ünd.")]]
"""Several images, and one after a text, which only Qwen-VL's loader takes as they are."""


def workspace(folder: Path, chats: list[Any], layout: str, tokenizer: str, template: str = TEMPLATE, **options: Any) -> Workspace:
    (folder / "configs" / "pictures").mkdir(parents=True)
    for number, size in enumerate(SIZES):
        Image.new("RGB", size, (number, 0, 0)).save(folder / "configs" / "pictures" / f"{number}.png")
    (folder / "configs" / "chat.jinja").write_text(template)
    files = {"image_dir": "pictures"} if any('"image": ' in json.dumps(chat) for chat in chats) else {}
    exports = {"files": {"from": "sft_tokens", "to": "llava", "options": {**files, "layout": layout}}}
    own = {"c": domain(jsonl(folder / "chats.jsonl", [{"messages": chat} for chat in chats]), "messages", image_dir="pictures")}
    mine = {
        "tokenizer": tokenizer,
        "template": "chat.jinja",
        "image_token": "<|image_pad|>",
        "image_tokens": RULE,
        "test_fraction": 0,
        "exports": exports,
    }
    return workspace_in(folder, minimal("sft", own, **{**mine, **options}))


def exported(mine: Workspace) -> Published:
    build(mine, "sft_tokens", "c")
    return make(mine, assets_of(mine)["sft_export_files"], "c")


def test_rows_name_files_by_content_and_are_compared_with_the_source(tmp_path: Path, qwens: str) -> None:
    mine = workspace(tmp_path, ANYWHERE, "qwen_vl", qwens)
    published = exported(mine)
    rows = json.loads((published.directory / "train.json").read_text())
    digests = [hashlib.sha256((tmp_path / "configs" / "pictures" / f"{number}.png").read_bytes()).hexdigest() for number in range(3)]
    places = [f"images/{digest[:2]}/{digest}.png" for digest in digests]
    assert {path.relative_to(published.directory).as_posix() for path in published.directory.rglob("*.png")} == {*places}
    said = lambda row: [(turn["from"], turn["value"]) for turn in row["conversations"]]  # noqa: E731
    assert [row["id"] for row in rows] == [*"012345"]
    assert (rows[0]["image"], said(rows[0])) == (places[0], [("human", "<image>\nWhat is it?"), ("gpt", "It is so.")])
    assert "image" not in rows[1] and said(rows[1])[1] == ("gpt", " Space around.\n")
    assert (rows[4]["image"], said(rows[4])[0]) == (
        [places[0], places[1], places[2]],
        ("human", "Left\n<image>\n<image>\nand right:\n<image>"),
    )
    declared = exporting(assets_of(mine)["sft_tokens"], "llava", None, {"image_dir": "pictures", "layout": "qwen_vl"})
    source, options = _source(declared, mine, mine.built("sft_tokens", "c")), declared.all_options(mine)
    assert compare(published.directory, source, "llava", options).passed
    assert opening("llava", tmp_path, source, options)[0] == "Qwen-VL"
    rows[5]["image"].reverse()
    (tmp_path / "train.json").write_text(json.dumps(rows))
    (tmp_path / "images").symlink_to(published.directory / "images")
    with pytest.raises(StoreError, match=r"row 5: .* is another file than '1.png'"):
        compare(tmp_path, source, "llava", options)
    rows[5]["image"].reverse()
    for spoil in ("value", "order", "image"):
        row = json.loads(json.dumps(rows[2]))
        if spoil == "order":
            row["conversations"].reverse()
        elif spoil == "value":
            row["conversations"][0]["value"] += "!"
        else:
            row["image"] = [row["image"]] * 2
        (tmp_path / "train.json").write_text(json.dumps([*rows[:2], row, *rows[3:]]))
        with pytest.raises(StoreError, match="row 2: its conversation is another"):
            compare(tmp_path, source, "llava", options)
    with pytest.raises(ConfigError, match="chats are read from the sources again"):
        export(mine.built("sft_tokens", "c"), "llava", tmp_path / "out", image_dir=str(tmp_path))
    with pytest.raises(ConfigError, match="llava writes chats, which are those of sft_tokens; pretrain_tokens has none"):
        exporting(asset_named("pretrain_tokens"), "llava", None, {})


@pytest.mark.parametrize(
    ("layout", "chat", "options", "fault"),
    [
        ("qwen_vl", [{"role": "system", "content": "Be kind."}, *ask("Why?")], {}, "its turns are system, user, assistant"),
        ("llava", [*ask("Why?"), {"role": "assistant", "content": "And."}], {}, "its turns are user, assistant, assistant"),
        ("llava", ask("A typed <image> is text."), {}, "'<image>' is typed in a text"),
        ("qwen_vl", ask("Why?", answer="See <video>."), {}, "'<video>' is typed in a text"),
        ("qwen_vl", ask("Look: ", 1), {}, "'Look: ' begins or ends with white space"),
        ("llava", ask("Look:", 1), {}, "one after a text: LLaVA's loader opens one"),
        ("llava", ask(0, 1), {}, "several images"),
        ("llava", [*ask("Why?"), *ask("How?")], {"train_turns": "last"}, "2 answers and 1 trained stretches"),
        ("qwen_vl", [*ask("Why?"), *ask("How?")], {"train_turns": "last"}, "the loader trains token "),
        ("qwen_vl", ask("Say: 'assistant' twice"), {}, r"the loader trains token \d+ .* in questions too"),
        ("qwen_vl", ask("Why?"), {"train_on_eos": "none"}, r"the loader trains token \d+ \(151645\)"),
        ("llava", ask("Why?", answer="A typed <|im_end|> is text."), {}, "is tokenized to other ids"),
        ("llava", ask("Why?"), {"template": PLAIN}, "as messages in parts: template_refuses"),
    ],
)
def test_what_a_loader_would_read_otherwise_stops_the_export(
    tmp_path: Path, qwens: str, layout: str, chat: list[Any], options: dict[str, Any], fault: str
) -> None:
    with pytest.raises(PrepAssetsError, match=fault):
        exported(workspace(tmp_path, [chat], layout, qwens, **options))


def test_qwen_vls_loader_makes_the_ids_and_labels_of_the_store(tmp_path: Path, qwens: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout(monkeypatch, "PREP_ASSETS_QWEN_VL", "qwen-vl-finetune")
    import transformers
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    mine = workspace(tmp_path, ANYWHERE, "qwen_vl", qwens)
    published = exported(mine)
    names = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(qwens, extra_special_tokens=names)
    lenient = type(
        "Qwen2VLProcessor", (transformers.Qwen2VLProcessor,), {"check_argument_for_proper_class": lambda self, name, each: type(each)}
    )
    images = Qwen2VLImageProcessorPil(min_pixels=RULE["min_pixels"], max_pixels=RULE["max_pixels"])
    processor = lenient(image_processor=images, tokenizer=tokenizer, video_processor=None, chat_template=TEMPLATE)
    for name in [name for name in sys.modules if name.partition(".")[0] == "qwenvl"]:
        monkeypatch.delitem(sys.modules, name)
    loader = pytest.importorskip("qwenvl.data.data_processor")
    exec(opening("llava", published.directory, None, {"layout": "qwen_vl", "split": "train"})[1], {})
    pixels = {"min_pixels": RULE["min_pixels"], "max_pixels": RULE["max_pixels"]}
    arguments = types.SimpleNamespace(dataset_use="mine", model_type="qwen2.5vl", data_packing=False, data_flatten=False, **pixels)
    module = loader.make_supervised_data_module(processor, arguments)
    monkeypatch.setattr(
        loader.LazySupervisedDataset, "__getitem__", lambda self, at: self.item_fn([self.list_data_dict[at]])
    )  # no other row instead
    rows = [module["train_dataset"][number] for number in range(len(ANYWHERE))]
    source = open_stream(mine.built("sft_tokens", "c").directory, "train")
    shown = 0
    for number, row in enumerate(rows):
        ids, mask = source.record(number, "tokens").tolist(), source.record(number, "loss_mask").tolist()
        assert row["input_ids"][0].tolist() == ids
        trained = [label != -100 for label in row["labels"][0].tolist()]
        after = [at > 0 and ids[at - 1] == QWEN["<|im_end|>"] for at in range(len(ids))]
        assert [is_trained and not is_after for is_trained, is_after in zip(trained, after, strict=True)] == [
            weight == 1 for weight in mask
        ]
        shown += len(row.get("image_grid_thw", ()))
    assert shown == len(source.images)
    tokenizer.model_max_length = 4096
    batch = module["data_collator"](rows)
    assert batch["input_ids"].shape == batch["labels"].shape and len(batch["image_grid_thw"]) == shown


VICUNA = (
    "{{ bos_token }} A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions. {% for message in messages %}"
    "{% if message.role == 'user' %}USER: {% for part in message.content %}{% if part.type == 'image' %}<image>{% if not loop.last %} \n{% endif %}"
    "{% else %}{{ part.text }}{% endif %}{% endfor %} {% else %}ASSISTANT: {{ message.content[0].text }}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
"""LLaVA's conversation ``v1``. Its loader tokenizes what follows an image by itself, and Llama's tokenizer puts a space before that."""


def test_llavas_loader_makes_the_ids_and_labels_of_the_store(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import transformers

    checkout(monkeypatch, "PREP_ASSETS_LLAVA")
    tokenizer = transformers.AutoTokenizer.from_pretrained(real_data / "tokenizers" / "mistral_v3")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    tokenizer.save_pretrained(tmp_path / "vicuna")
    mine = workspace(tmp_path, CHATS, "llava", str(tmp_path / "vicuna"), VICUNA, image_token="<image>", image_tokens=None)
    published = exported(mine)
    bypass("llava")
    stand_in("llava.model", "llava.train.llava_trainer")
    loader = pytest.importorskip("llava.train.train")
    tokenizer.pad_token, tokenizer.legacy, tokenizer.model_max_length = tokenizer.unk_token, False, 4096
    pixels = types.SimpleNamespace(
        preprocess=lambda image, **_: {"pixel_values": [torch.tensor(image.size)]}, crop_size={"height": 1, "width": 1}
    )
    about = {"image_folder": str(published.directory), "image_processor": pixels, "is_multimodal": True}
    arguments = types.SimpleNamespace(**about, image_aspect_ratio="square", mm_use_im_start_end=False)
    rows = loader.LazySupervisedDataset(str(published.directory / "train.json"), tokenizer, arguments)
    source = open_stream(mine.built("sft_tokens", "c").directory, "train")
    assert len(rows) == len(source) == len(CHATS)
    for number, row in enumerate(rows):
        ids, mask = source.record(number, "tokens").tolist(), source.record(number, "loss_mask").tolist()
        image = tokenizer.convert_tokens_to_ids("<image>")
        assert [image if token == loader.IMAGE_TOKEN_INDEX else token for token in row["input_ids"].tolist()] == ids
        assert row["labels"].tolist() == [token if weight else -100 for token, weight in zip(ids, mask, strict=True)]
    assert [tuple(row["image"].tolist()) for row in rows if row["image"].ndim == 1] == SIZES
