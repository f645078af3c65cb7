"""Images whose tokens are counted by the rule of a processor, on the whole way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.config.models import Sft
from prep_assets.errors import CheckFailed, ConfigError
from prep_assets.extensions.media import files as image_parts
from prep_assets.extensions.media.files import FilesOfRecords
from prep_assets.extensions.media.proofs.tokens import expected_text
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import Table, open_stream
from prep_assets_tests.graph.pictures import AROUND, PLACES, TOKEN, chat, png, tokenizer_in
from prep_assets_tests.graph.workspaces import build, build_all, domain, jsonl, refusals, workspace_in

pytest.importorskip("PIL")
Make = Callable[..., Workspace]
SIZES = {"wide.png": (640, 120), "tall.png": (90, 400), "small.png": (30, 30)}
QWEN = {"rule": "qwen2_vl", "patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 20_000}
RULES: dict[str, dict[str, Any]] = {
    "qwen2_vl": QWEN,
    "llava_next": {
        "rule": "llava_next",
        "image_size": 28,
        "patch_size": 14,
        "image_grid_pinpoints": [[28, 56], [56, 28], [56, 56]],
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": "default",
    },
    "internvl": {"rule": "internvl", "image_seq_length": 3, "tile_height": 64, "tile_width": 64, "min_patches": 1, "max_patches": 6},
    "idefics3": {"rule": "idefics3", "image_seq_len": 2, "longest_edge": 400, "tile": 100},
    "fixed": {"rule": "fixed", "tokens": 5, "begin": "\n\n<start_of_image>", "end": "<end_of_image>\n\n", "mark": "<start_of_image>"},
}
ROWS = [
    chat("Look: <image>What is it?<image> And <image>", "wide.png", "tall.png", "small.png"),
    {
        "messages": [
            {"role": "user", "content": "First <image>"},
            {"role": "assistant", "content": "Tall."},
            {"role": "user", "content": "<image><image>"},
            {"role": "assistant", "content": "Wide, then tall."},
        ],
        "images": ["tall.png", "wide.png", "tall.png"],
    },
    chat("No picture."),
]
NATIVE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'image' %}<|vision_start|><image><|vision_end|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tokenizer_in(tmp_path_factory.mktemp("tokenizer"), *AROUND, *PLACES)


@pytest.fixture
def make(tmp_path: Path, tokenizer: str) -> Make:
    """`make(rows, **options)`: a workspace of one domain, `mine`, whose pictures have the sizes of `SIZES`."""

    def inside(rows: list[Any] = ROWS, *, family: str = "sft", schema: str = "messages", **options: Any) -> Workspace:
        pictures = tmp_path / "pictures"
        pictures.mkdir(exist_ok=True)
        for name, size in {**SIZES, "thin.png": (4000, 10)}.items():
            (pictures / name).write_bytes(png(*size))
        (pictures / "broken.png").write_bytes(b"no picture")
        (pictures / "held.png").write_bytes(png(120, 640, orientation=6))
        own = domain(jsonl(tmp_path / "rows.jsonl", rows), schema, image_dir=str(pictures))
        packing = {"packing": {"strategy": "bfd", "row_len": 1024}} if family == "sft" else {}
        values = {"tokenizer": tokenizer, "image_token": TOKEN, "domains": {"mine": own}, **packing, **options}
        return workspace_in(tmp_path, {family: values})

    return inside


def placed(store: Table, record: int) -> list[tuple[str, tuple[int, int] | None, np.ndarray[Any, Any]]]:
    """The images of a record: path, resolution, tokens."""
    part, ids = store.images.of(record, record + 1), store.record(record, "tokens")
    images = store.images.references(np.arange(part.start, part.stop))
    places = zip(store.images.start[part].tolist(), store.images.length[part].tolist(), strict=True)
    return [(image.path, image.size, ids[start : start + length]) for image, (start, length) in zip(images, places, strict=True)]


def tokens_of(workspace: Workspace, family: str = "sft") -> Any:
    """The tokens of the one domain, built."""
    return build(workspace, f"{family}_tokens", "mine")


@pytest.mark.parametrize("rule", RULES)
def test_chats(make: Make, rule: str) -> None:
    workspace = make(image_tokens=RULES[rule])
    published = build_all(workspace, ["sft"])
    family = workspace.family(Sft)
    store, token = open_stream(published["sft_tokens", "mine"].directory, "train"), FilesOfRecords(workspace, family).ids().get("image")
    vocabulary, counted = workspace.vocabulary(family), FilesOfRecords(workspace, family).rules.get("image")
    assert counted is not None
    for record, row in enumerate(ROWS):
        found = placed(store, record)
        assert [path for path, *_ in found] == row.get("images", [])
        for path, size, ids in found:
            assert size == (None if rule == "fixed" else SIZES[path])
            assert "".join(vocabulary.decode([one]) for one in ids) == expected_text(counted, TOKEN, SIZES[path]).strip()
        mine = store.record(record, "tokens")
        assert (mine == token).sum() == sum(int((ids == token).sum()) for *_, ids in found)
        assert not store.record(record, "loss_mask")[mine == token].any()
    packed = open_stream(published["sft_packed", ""].directory, "sft_packed")
    assert len(packed.images) == 6 and sorted(packed.images.length.tolist()) == sorted(store.images.length.tolist())


@pytest.mark.parametrize("rule", RULES)
def test_a_template_that_writes_images_itself(make: Make, tmp_path: Path, rule: str) -> None:
    (tmp_path / "native.jinja").write_text(NATIVE.replace("<image>", RULES[rule].get("mark", TOKEN)), "utf-8")
    workspace = make(image_tokens=RULES[rule], template=str(tmp_path / "native.jinja"))
    published = tokens_of(workspace)
    assert refusals(published) == []
    store, vocabulary = open_stream(published.directory, "train"), workspace.vocabulary(workspace.family(Sft))
    text = "".join(vocabulary.decode([one]) for one in store.record(0, "tokens"))
    counted = FilesOfRecords(workspace, workspace.family(Sft)).rules.get("image")
    assert counted is not None
    wrote = [f"<|vision_start|>{expected_text(counted, TOKEN, SIZES[name])}<|vision_end|>" for name in ROWS[0]["images"]]
    assert f"Look: {wrote[0]}What is it?{wrote[1]} And {wrote[2]}<|im_end|>" in text


@pytest.mark.parametrize("rule", RULES)
def test_documents(make: Make, rule: str) -> None:
    rows = [{"images": ["wide.png", None, "tall.png"], "texts": [None, f"Picture {n}.", None]} for n in range(4)]
    workspace = make(rows, family="pretrain", schema="interleaved", image_tokens=RULES[rule], test_fraction=0.4)
    published = tokens_of(workspace, "pretrain")
    assert published.manifest.counts["kept"] == 4
    stores = [open_stream(published.directory, f"mine_{stream}") for stream in ("train", "dev")]
    assert [path for store in stores for record in range(len(store)) for path, *_ in placed(store, record)] == ["wide.png", "tall.png"] * 4


REFUSED = [
    ("thin.png", "image_resolution", "'thin.png': 4000 x 10 pixels: one side is more than 200 times"),
    ("broken.png", "unreadable_image", "its header gives no resolution"),
    ("https://example.org/1.png", "no_resolution", "state its width and height"),
    ({"path": "wide.png", "width": 640, "height": 121}, "resolution_differs", "has 640 x 120 pixels, its row says 640 x 121"),
    ({"path": "wide.png", "width": 640}, "wrong_type", "height"),
    ({"path": "wide.png", "width": 0, "height": 1}, "wrong_type", "needs 1 or more"),
    ({"path": "wide.png", "max_pixels": 100}, "image_resized", "max_pixels 100"),
]


def test_what_no_rule_counts_is_refused(make: Make) -> None:
    workspace = make([*(chat("<image>", image) for image, *_ in REFUSED), chat("none")], image_tokens=QWEN)
    published = tokens_of(workspace)
    found = sorted(refusals(published), key=lambda each: each.id)
    assert [each.reason for each in found] == [reason for _, reason, _ in REFUSED]
    assert all(detail in each.detail for each, (*_, detail) in zip(found, REFUSED, strict=True))


def test_a_row_may_state_the_resolution_and_a_camera_may_be_turned(make: Make) -> None:
    said = {"path": "https://example.org/1.png", "width": 640, "height": 120}
    part = {"type": "image", "image": "wide.png", "width": 640, "height": 120}
    parts = {"messages": [{"role": "user", "content": [part]}, {"role": "assistant", "content": "Yes."}]}
    workspace = make([chat("<image><image><image>", said, "held.png", "wide.png"), parts], image_tokens=QWEN)
    published = tokens_of(workspace)
    assert refusals(published) == []
    store = open_stream(published.directory, "train")
    assert [size for record in range(2) for _, size, _ in placed(store, record)] == [(640, 120)] * 4


def one_more(rule: Any, token: str, width: int, height: int) -> str:
    return token + expected_text(rule, token, (width, height))


def one_less(rule: Any, token: str, width: int, height: int) -> str:
    return expected_text(rule, token, (width, height)).replace(token, "", 1)


def other_size(rule: Any, token: str, width: int, height: int) -> str:
    return expected_text(rule, token, (width, height + 56))


@pytest.mark.parametrize(("wrong", "family"), [(one_more, "sft"), (one_less, "pretrain"), (other_size, "sft")])
def test_a_wrong_count_fails_the_checks(make: Make, monkeypatch: pytest.MonkeyPatch, wrong: Any, family: str) -> None:
    rows, schema = {
        "sft": (ROWS, "messages"),
        "pretrain": ([{"images": ["small.png", None], "texts": [None, "A picture."]}], "interleaved"),
    }[family]
    workspace = make(rows, family=family, schema=schema, image_tokens=QWEN)
    monkeypatch.setattr(image_parts, "placeholder_of", wrong)
    with pytest.raises(CheckFailed, match=r"(?s)row_integrity: image 0, .* its resolution \(.*\) gives \d+.*\n.*tokenization_identity: "):
        tokens_of(workspace, family)


@pytest.mark.parametrize("truncation", ["end", "prompt"])
def test_truncation_never_cuts_through_an_image(make: Make, truncation: str) -> None:
    long = chat("<image> " + "and then " * 20 + "<image>", "wide.png", "tall.png", answer="One answer of a few words.")
    for limit in (60, 110):
        workspace = make([long, chat("Hi.")], image_tokens=RULES["idefics3"], truncation=truncation, preprocessing={"max_seq_len": limit})
        published = tokens_of(workspace)
        assert {each.reason for each in refusals(published)} <= {"too_long", "image_cut", "nothing_to_train", "no_prompt_left"}
        store, token = open_stream(published.directory, "train"), FilesOfRecords(workspace, workspace.family(Sft)).ids().get("image")
        for record in range(len(store)):
            found = placed(store, record)
            assert (store.record(record, "tokens") == token).sum() == sum(int((ids == token).sum()) for *_, ids in found)


def test_tokens_that_the_tokenizer_lacks_are_refused_before_a_record_is_read(make: Make) -> None:
    workspace = make(image_tokens={**RULES["idefics3"], "longest_edge": 500})
    with pytest.raises(ConfigError, match=r"image_tokens: idefics3 writes '<row_1_col_5>', .* no control token of tokenizer"):
        tokens_of(workspace)
