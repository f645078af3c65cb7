"""Images in chats and in documents."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.config.models import Pretrain, Sft
from prep_assets.engine import state
from prep_assets.errors import CheckFailed, ConfigError, PrepAssetsError, Refused, SourceError
from prep_assets.extensions.media.files import FilesOfRecords, ImageFiles
from prep_assets.graph.graph import assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.pictures import TOKEN, chat, digest, listed, pictures_in, tokenizer_in
from prep_assets_tests.graph.workspaces import build, build_all, domain, failing, jsonl, part_of, refusals, resealed, tree, workspace_in
from prep_assets_tests.stored import packed_rows

# Images on the whole way: references with a digest, placeholders at known places, nothing decoded and nothing lost.


Make = Callable[..., Workspace]
ROWS = [
    chat("Look: <image>What is it?<image>", "1.png", "sub/2.png"),
    chat("No picture, but the text &lt;image&gt; and " + TOKEN[:-1] + " in it."),
    chat("<image>", "https://example.org/far.png", answer="Far."),
    chat("Again <image> here.", "1.png"),
]


@pytest.fixture
def make_sft(tmp_path: Path) -> Make:
    """`make_sft(rows, name="", **options)`: a workspace of one SFT domain, `mine`, with its pictures in place."""

    def inside(rows: list[Any] = ROWS, *, name: str = "here", mine: dict[str, Any] | None = None, **options: Any) -> Workspace:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        own = domain(jsonl(folder / "rows.jsonl", rows), "messages", image_dir=str(pictures_in(folder, "1.png", "sub/2.png")))
        options = {"image_token": TOKEN, "packing": {"strategy": "bfd", "row_len": 128}, **options}
        return workspace_in(folder, {"sft": {"tokenizer": tokenizer_in(tmp_path), "domains": {"mine": {**own, **(mine or {})}}, **options}})

    return inside


@pytest.mark.parametrize("patches", [1, 4])
def test_chats_with_images(make_sft: Make, patches: int) -> None:
    workspace = make_sft(image_patches=patches)
    published = build_all(workspace, ["sft"])
    tokens = published["sft_tokens", "mine"]
    counts = tokens.manifest.counts
    assert (counts["kept"], counts["images"], counts["images_cut_away"]) == (4, 4, 0)
    store, token = open_stream(tokens.directory, "train"), FilesOfRecords(workspace, workspace.family(Sft)).ids().get("image")
    paths = [row["images"] for row in ROWS]
    found = listed(store)
    assert [(record, path) for record, _, _, path, _ in found] == [(i, path) for i, images in enumerate(paths) for path in images]
    assert [sha256 for *_, sha256 in found] == [digest("1.png"), digest("sub/2.png"), None, digest("1.png")]
    for record in range(4):
        held = np.flatnonzero(store.record(record, "tokens") == token)
        assert held.tolist() == [at for r, start, length, *_ in found if r == record for at in range(start, start + length)]
        assert len(held) == patches * len(paths[record]) and not store.record(record, "loss_mask")[held].any()
    text = workspace.vocabulary(workspace.family(Sft)).decode(store.record(0, "tokens"))
    assert f"Look: {TOKEN * patches}What is it?{TOKEN * patches}" in text and "png" not in text


@pytest.mark.parametrize(("strategy", "epochs", "storage"), [("bfd", None, "h5"), ("concat", None, "bin"), ("ffd", {"mine": 2.5}, "bin")])
def test_a_packed_table_has_the_images_of_its_records(make_sft: Make, storage: str, strategy: str, epochs: Any) -> None:
    workspace = make_sft(packing={"strategy": strategy, "row_len": 64, "epochs": epochs}, output={"storage_format": storage})
    published = build_all(workspace, ["sft"])["sft_packed", ""]
    packed, token = open_stream(published.directory, "sft_packed"), FilesOfRecords(workspace, workspace.family(Sft)).ids().get("image")
    store = open_stream(workspace.published("sft_tokens", "mine").directory, "train")
    held = [(row, place) for row in range(len(packed)) for place in np.flatnonzero(np.asarray(packed_rows(packed)[row]) == token).tolist()]
    assert list(zip(packed.images.record.tolist(), packed.images.start.tolist(), strict=True)) == held
    by_record: dict[int, list[str]] = {}
    for record, *_, path, _ in listed(store):
        by_record.setdefault(record, []).append(path)
    documents = {name: np.asarray(values) for name, values in packed.pieces.fields.items()}
    whole = documents["length"] == np.diff(store.columns["tokens"].ends, prepend=0)[documents["record"]]
    expected = [path for record in documents["record"] for path in by_record.get(int(record), [])]
    if whole.all():
        assert [image.path for image in packed.images.references(np.arange(len(held)))] == expected
    counts = published.manifest.counts
    assert counts["images"] == len(held) and counts["images_left_out"] == 0


def test_an_image_is_never_split_over_rows(make_sft: Make) -> None:
    workspace = make_sft(
        [chat("<image>", "1.png") for _ in range(3)] + [chat("<image> " + "a b " * n, "1.png") for n in range(8)], image_patches=30
    )
    build(workspace, "sft_tokens", "mine")
    cutting = workspace.overriding("sft", {"packing": {"strategy": "concat", "row_len": 48, "epochs": None}})
    with pytest.raises(
        PrepAssetsError, match=r"the border of a row goes through \d+ of 9 images; the longest image has 30 tokens, a row 48"
    ):
        build(cutting, "sft_packed")


ELSEWHERE = [
    ("gone.png", "missing_image"),
    ("sub", "missing_image"),
    ("../rows.jsonl", "image_outside_folder"),
    ("/etc/hostname", "image_outside_folder"),
    ("sub/../1.png", None),
    ("x" * 5000, "unreadable_image"),
    ("file:///etc/hostname", "unknown_image_scheme"),
    ("htps://x/y.jpg", "unknown_image_scheme"),
    ("C:\\x://y", "unknown_image_scheme"),
    ("HTTPS://example.org/y.jpg", None),
    ("s3://bucket/y.jpg", None),
]


def test_images_that_are_not_there(make_sft: Make) -> None:
    published = build(make_sft([*(chat("<image>", path) for path, _ in ELSEWHERE), chat("none")]), "sft_tokens", "mine")
    bad = [(f"rows.jsonl:{number + 1}", reason, "render") for number, (_, reason) in enumerate(ELSEWHERE) if reason]
    assert [(each.id, each.reason, each.stage) for each in refusals(published)] == bad
    assert all(len(each.detail) < 1000 for each in refusals(published))


def test_local_images_need_a_folder_and_urls_do_not(make_sft: Make) -> None:
    workspace = make_sft(mine={"image_dir": None})
    published = build(workspace, "sft_tokens", "mine")
    assert [each.reason for each in refusals(published)] == ["no_image_dir"] * 2
    assert [path for *_, path, _ in listed(open_stream(published.directory, "train"))] == ["https://example.org/far.png"]


def test_without_an_image_token_records_with_images_are_refused(make_sft: Make) -> None:
    workspace = make_sft(image_token=None, mine={"image_dir": None})
    published = build(workspace, "sft_tokens", "mine")
    assert [each.reason for each in refusals(published)] == ["no_image_token"] * 3
    assert published.manifest.counts["kept"] == 1 and "images" not in published.manifest.counts
    assert not list(published.directory.glob("*.images"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_token": "<img>"}, "image_token '<img>' is no control token of tokenizer .* which has .*<image>"),
        ({"image_token": "a"}, "no control token"),
        ({"image_token": "<|endoftext|>"}, "the token that ends texts or turns"),
        ({"image_token": "<|im_end|>"}, "the token that ends texts or turns"),
        ({"image_token": "<|im_start|>"}, "is written by the chat template .* Name another control token"),
        ({"template_options": {"image_token": "<|pad|>"}}, "template_options.image_token '<|pad|>'. Leave the second one out"),
    ],
)
def test_tokens_that_cannot_stand_for_an_image(make_sft: Make, options: dict[str, Any], message: str) -> None:
    workspace = make_sft(**options)
    build(workspace, "sft_raw", "mine")
    with pytest.raises(ConfigError, match=message.replace("|", r"\|")):
        build(workspace, "sft_tokens", "mine")


ODD = """{% if tools %}<image>{{ tools | tojson }}{% endif %}{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def test_a_token_that_the_template_writes_now_and_then_is_noticed_before_anything_is_published(make_sft: Make, tmp_path: Path) -> None:
    (tmp_path / "odd.jinja").write_text(ODD, "utf-8")
    workspace = make_sft([{**chat("odd"), "tools": [{"name": "f"}]}], template=str(tmp_path / "odd.jinja"))
    build(workspace, "sft_raw", "mine")
    with pytest.raises(
        CheckFailed, match=r"is the image token, and no image stands there\. Where the chat template .* name another control"
    ):
        build(workspace, "sft_tokens", "mine")


def test_a_sentinel_of_fill_in_the_middle_is_no_image_token(tmp_path: Path) -> None:
    domains = {"mine": domain(jsonl(tmp_path / "rows.jsonl", [{"text": "a"}]), "text")}
    family = {"tokenizer": tokenizer_in(tmp_path), "domains": domains, "image_token": TOKEN}
    for rate, refused in ((0.5, True), (0.0, False)):
        options = {"preprocessing": {"fim": {"rate": rate, "middle_token": TOKEN}}} if rate else {}
        workspace = workspace_in(tmp_path, {"pretrain": {**family, **options}})
        if refused:
            with pytest.raises(ConfigError, match="sentinel of fim"):
                FilesOfRecords(workspace, workspace.family(Pretrain)).ids().get("image")
        else:
            assert FilesOfRecords(workspace, workspace.family(Pretrain)).ids().get("image") is not None


def test_links_to_files_stay_in_the_folder_and_folders_may_be_links(tmp_path: Path) -> None:
    disk = pictures_in(tmp_path / "disk", "1.png", "2.png")
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "images"
    (folder / "own").mkdir(parents=True)
    (folder / "own" / "3.png").write_bytes(b"3")
    (folder / "disk").symlink_to(disk)
    (folder / "inside.png").symlink_to(folder / "own" / "3.png")
    (folder / "outside.png").symlink_to(tmp_path / "secret")
    (tmp_path / "linked").symlink_to(folder)
    for files in (ImageFiles(folder), ImageFiles(tmp_path / "linked")):
        assert files.digest("disk/1.png") == digest("1.png")
        assert files.digest("inside.png") == files.digest("own/3.png") == hashlib.sha256(b"3").hexdigest()
        with pytest.raises(Refused, match=r"image_outside_folder: .*outside\.png is a link to .*secret"):
            files.digest("outside.png")


def test_the_older_place_of_the_option_and_the_padding_token(make_sft: Make) -> None:
    """As in Cerebras' files, images may stand on padding tokens: rows are told apart by what is used of them."""
    workspace = make_sft(image_token=None, template_options={"image_token": "<|pad|>"}, image_patches=2)
    published = build_all(workspace, ["sft"])
    assert published["sft_packed", ""].manifest.counts["images"] == 4


# -- lineage ----------------------------------------------------------------------------------------------------------------------------


def test_another_image_gives_other_stores(make_sft: Make, tmp_path: Path) -> None:
    workspace = make_sft()
    before = build_all(workspace, ["sft"])
    again = build_all(workspace, ["sft"])
    assert all(each.reused for each in again.values())
    (tmp_path / "here" / "pictures" / "1.png").write_bytes(b"another picture")
    states = {name: state(workspace, assets_of(workspace)[name], part) for name, part in (("sft_raw", "mine"), ("sft_tokens", "mine"))}
    assert states["sft_raw"] != "current"
    with pytest.raises(SourceError, match=r"the images in .*pictures changed since they were pinned"):
        build(workspace.overriding("sft", {"preprocessing": {"max_seq_len": 1000}}), "sft_tokens", "mine")
    after = build_all(workspace, ["sft"])
    for key in (("sft_raw", "mine"), ("sft_tokens", "mine"), ("sft_packed", "")):
        assert after[key].manifest.build_key != before[key].manifest.build_key
        assert after[key].manifest.content_hash != before[key].manifest.content_hash
    digests = [sha256 for *_, sha256 in listed(open_stream(after["sft_tokens", "mine"].directory, "train"))]
    new = hashlib.sha256(b"another picture").hexdigest()
    assert digests == [new, digest("sub/2.png"), None, new]


def test_where_the_images_are_changes_nothing(make_sft: Make) -> None:
    one, other = (make_sft(name=name) for name in ("one", "other"))
    for workspace in (one, other):
        build_all(workspace, ["sft"])
    assert tree(one.stores) == tree(other.stores)


def test_a_domain_without_a_folder_of_images_pins_none(make_sft: Make) -> None:
    workspace = make_sft([chat("none")], mine={"image_dir": None})
    published = build(workspace, "sft_raw", "mine")
    assert set(json.loads((published.directory / "sources.json").read_text())) == {"files", "test_files"}
    assert "images" not in published.manifest.recipe


# -- checks -----------------------------------------------------------------------------------------------------------------------------


def corrupt(published: Published, stream: str, field: str, at: int, value: Any) -> Published:
    folder = published.directory / f"{stream}.images"
    if field == "path":
        lines = (folder / "images.jsonl").read_text().splitlines()
        lines[at], lines[value] = lines[value], lines[at]
        (folder / "images.jsonl").write_text("".join(line + "\n" for line in lines))
        np.save(folder / "end.npy", np.cumsum([len(line) + 1 for line in lines]))
    else:
        column = np.load(folder / f"{field}.npy")
        column[at] += value
        np.save(folder / f"{field}.npy", column)
    return resealed(published)


@pytest.mark.parametrize(
    ("asset", "stream", "field", "caught_by"),
    [
        ("sft_tokens", "train", "start", ["row_integrity"]),
        ("sft_tokens", "train", "length", ["row_integrity"]),
        ("sft_tokens", "train", "record", ["row_integrity"]),
        ("sft_packed", "sft_packed", "start", ["row_integrity", "mask_alignment"]),
        ("sft_packed", "sft_packed", "path", ["mask_alignment"]),
    ],
)
def test_a_wrong_table_of_images_is_caught(make_sft: Make, asset: str, stream: str, field: str, caught_by: list[str]) -> None:
    workspace = make_sft()
    published = build_all(workspace, ["sft"])[asset, "mine" if asset == "sft_tokens" else ""]
    assert failing(workspace, corrupt(published, stream, field, 1, 2 if field == "path" else 1)) == caught_by


# -- pretraining and the other families -------------------------------------------------------------------------------------------------


# -- shipped recipe and real data -------------------------------------------------------------------------------------------------------


def test_llama_factorys_photographs_have_the_tokens_that_qwens_processor_gives_them(real_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    from transformers.image_utils import load_image
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    source = real_data / "llama_factory"
    theirs = Qwen2VLImageProcessorPil(min_pixels=3136, max_pixels=200_000)
    rule = {"rule": "qwen2_vl", "patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 200_000}
    options = {"tokenizer": tokenizer_in(tmp_path), "image_token": TOKEN, "image_tokens": rule}
    own = domain(source / "mllm_demo.json", "messages", image_dir=str(source))
    workspace = workspace_in(tmp_path, {"sft": {**options, "domains": {"mine": own}}})
    published = build(workspace, "sft_tokens", "mine")
    found = listed(open_stream(published.directory, "train"))
    grids = {path: theirs(images=[load_image(str(source / path))])["image_grid_thw"][0] for *_, path, _ in found}
    assert len(grids) == 3
    assert [length for _, _, length, _, _ in found] == [int(grids[path].prod()) // 4 for *_, path, _ in found]


# Images in documents: tokens at their places, masked, and documents without any as they were; families that refuse images.


DOCUMENTS = [
    {"images": [None], "texts": ["No image."]},
    {"images": [None, "1.png", None], "texts": ["A picture:", None, f"It has {TOKEN} in it."]},
    {"images": ["sub/2.png", "1.png", None], "texts": [None, None, "Two."]},
    {"images": ["gone.png", None], "texts": [None, "Gone."]},
    {"images": ["1.png"], "texts": [None]},
]


@pytest.mark.parametrize(("storage", "patches"), [("h5", 1), ("bin", 3)])
def test_documents_with_images(tmp_path: Path, storage: str, patches: int) -> None:
    own = domain(jsonl(tmp_path / "rows.jsonl", DOCUMENTS), "interleaved", image_dir=str(pictures_in(tmp_path, "1.png", "sub/2.png")))
    options = {"tokenizer": tokenizer_in(tmp_path), "image_token": TOKEN, "image_patches": patches, "output": {"storage_format": storage}}
    workspace = workspace_in(tmp_path, {"pretrain": {**options, "domains": {"mine": own, "docs": domain("docs.jsonl.zst", "text")}}})
    published = build_all(workspace, ["pretrain"])
    mine = published["pretrain_tokens", "mine"]
    assert sorted(each.reason for each in refusals(mine)) == ["missing_image", "too_short"]
    store = open_stream(mine.directory, "mine_train")
    assert [(record, path, sha256) for record, *_, path, sha256 in listed(store)] == [
        (1, "1.png", digest("1.png")),
        (2, "sub/2.png", digest("sub/2.png")),
        (2, "1.png", digest("1.png")),
    ]
    tokens, mask = (np.asarray(store.columns[key].values[:]) for key in ("tokens", "loss_mask"))
    token = FilesOfRecords(workspace, workspace.family(Pretrain)).ids().get("image")
    assert (mask == (tokens != token)).all() and (mask == 0).sum() == 3 * patches
    plain = open_stream(published["pretrain_tokens", "docs"].directory, "docs_train")
    assert list(plain.columns) == ["tokens"] and len(plain.images) == 0


def test_image_token_changes_no_byte_of_documents_without_images(tmp_path: Path) -> None:
    files = []
    for name, options in (("with", {"image_token": TOKEN}), ("without", {})):
        folder = tmp_path / name
        folder.mkdir()
        families = {"pretrain": {"tokenizer": tokenizer_in(tmp_path), **options, "domains": {"docs": domain("docs.jsonl.zst", "text")}}}
        published = build_all(workspace_in(folder, families), ["pretrain"])["pretrain_tokens", "docs"]
        files.append(published.manifest.files)
    assert files[0] == files[1]


def test_documents_with_images_are_like_plain_ones_where_they_have_none(tmp_path: Path) -> None:
    """One image turns a whole domain to the other way of tokenizing; the documents without one stay what they were."""
    rows = [{"images": [None], "texts": [text]} for text in ("Some text.", " ünï 🐕 \n", "<|endoftext|> typed", "x" * 50)]
    stores = []
    for name, more in (("plain", []), ("images", [{"images": [None, "https://example.org/1.png"], "texts": ["a", None]}])):
        (tmp_path / name).mkdir()
        own = domain(jsonl(tmp_path / name / "rows.jsonl", rows + more), "interleaved")
        options = {"tokenizer": tokenizer_in(tmp_path), "image_token": TOKEN, "preprocessing": {"max_seq_len": 30}, "test_fraction": 0.4}
        workspace = workspace_in(tmp_path / name, {"pretrain": {**options, "domains": {"mine": own}}})
        published = build_all(workspace, ["pretrain"])["pretrain_tokens", "mine"]
        stores.append(
            [
                [store.record(i, "tokens").tolist() for i in range(len(store)) if i not in store.images.record]
                for store in (open_stream(published.directory, "mine_train"), open_stream(published.directory, "mine_dev"))
            ]
        )
        counts = published.manifest.counts
        assert counts["read"] == counts["kept"] + sum(counts["refused"].values())
    assert stores[0] == stores[1]


def test_documents_with_images_are_not_cut_for_fill_in_the_middle(tmp_path: Path) -> None:
    own = domain(jsonl(tmp_path / "rows.jsonl", DOCUMENTS[:2]), "interleaved", image_dir=str(pictures_in(tmp_path, "1.png")))
    fim = {"rate": 0.5, "prefix_token": "<|im_start|>", "suffix_token": "<|im_end|>", "middle_token": "<|pad|>"}
    options = {"tokenizer": tokenizer_in(tmp_path), "image_token": TOKEN, "preprocessing": {"fim": fim}}
    workspace = workspace_in(tmp_path, {"pretrain": {**options, "domains": {"mine": own}}})
    build(workspace, "pretrain_raw", "mine")
    with pytest.raises(ConfigError, match="mine has images"):
        build(workspace, "pretrain_tokens", "mine")


def test_documents_without_an_image_token(tmp_path: Path) -> None:
    own = domain(jsonl(tmp_path / "rows.jsonl", DOCUMENTS[:2]), "interleaved")
    workspace = workspace_in(tmp_path, {"pretrain": {"tokenizer": tokenizer_in(tmp_path), "domains": {"mine": own}}})
    published = build(workspace, "pretrain_tokens", "mine")
    assert [each.reason for each in refusals(published)] == ["no_image_token"]


def test_preferences_and_prompts_refuse_images(tmp_path: Path) -> None:
    part = [{"type": "image", "image": "1.png"}, {"type": "text", "text": "What is it?"}]
    pairs = [
        {
            "prompt": [{"role": "user", "content": content}],
            "chosen": [{"role": "assistant", "content": "A"}],
            "rejected": [{"role": "assistant", "content": "B"}],
        }
        for content in (part, "What?")
    ]
    prompts = [{"prompt": [{"role": "user", "content": content}], "gold": "1"} for content in (part, "1 + 0?")]
    families = {
        "preference": {
            "tokenizer": tokenizer_in(tmp_path),
            "test_fraction": 0,
            "domains": {"mine": domain(jsonl(tmp_path / "pairs.jsonl", pairs), "preference")},
        },
        "rl": {"tokenizer": tokenizer_in(tmp_path), "domains": {"mine": domain(jsonl(tmp_path / "prompts.jsonl", prompts), "rl_prompt")}},
    }
    workspace = workspace_in(tmp_path, families)
    for raw, asset in (("preference_raw", "preferences"), ("rl_raw", "rl_prompts")):
        build(workspace, raw, "mine")
        build(workspace, asset)
        published = part_of(workspace, asset, "mine")
        assert [each.reason for each in refusals(published)] == ["unsupported_media"]
        assert not any(b"1.png" in path.read_bytes() for path in published.directory.rglob("*.jsonl"))


# -- images that rows hold --------------------------------------------------------------------------------------------------------------


def test_images_in_the_row_are_those_of_files(tmp_path: Path) -> None:
    """The Hub's Parquet files have ``{"bytes", "path": null}``, rows for OpenAI's interface data URLs: their ids are those of the same pictures as files."""
    image = pytest.importorskip("PIL.Image")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "pictures"
    folder.mkdir()
    contents = {}
    for name, size in (("cat.png", (224, 224)), ("yarn.jpg", (640, 480))):
        image.new("RGB", size, (200, 30, 90)).save(folder / name)
        contents[name] = (folder / name).read_bytes()
    rule = {"rule": "qwen2_vl", "patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 1_000_000}
    options = {"tokenizer": tokenizer_in(tmp_path), "image_token": TOKEN, "image_tokens": rule}
    said = [{"role": "user", "content": "<image>What?<image>"}, {"role": "assistant", "content": "A cat, then yarn."}]
    links = [f"data:image/x;base64,{base64.b64encode(content).decode()}" for content in contents.values()]
    held = [{"bytes": content, "path": None} for content in contents.values()]
    pq.write_table(pa.Table.from_pylist([{"messages": said, "images": held}]), tmp_path / "rows.parquet")
    files = {
        "files": domain(jsonl(tmp_path / "files.jsonl", [{"messages": said, "images": [*contents]}]), "messages", image_dir=str(folder)),
        "links": domain(jsonl(tmp_path / "links.jsonl", [{"messages": said, "images": links}]), "messages"),
        "table": domain(tmp_path / "rows.parquet", "messages"),
    }
    workspace = workspace_in(tmp_path, {"sft": {**options, "domains": files}})
    published = {name: build(workspace, "sft_tokens", name) for name in files}
    stores = {name: open_stream(each.directory, "train") for name, each in published.items()}
    assert [failing(workspace, each) for each in published.values()] == [[], [], []]
    ids = [store.record(0, "tokens").tolist() for store in stores.values()]
    assert ids[0] == ids[1] == ids[2]
    digests = [hashlib.sha256(content).hexdigest() for content in contents.values()]
    assert [sha256 for *_, sha256 in listed(stores["files"])] == digests
    for name in ("links", "table"):
        assert [(path, sha256) for *_, path, sha256 in listed(stores[name])] == [
            (f"{digest}.{suffix}", digest) for digest, suffix in zip(digests, ("png", "jpg"), strict=True)
        ]


@pytest.mark.parametrize("link", ["data:image/png,AA", "data:image/png;base64,A"])
def test_an_image_that_no_data_url_holds_is_refused(make_sft: Make, link: str) -> None:
    published = build(make_sft([*ROWS, chat("<image>", link)]), "sft_tokens", "mine")
    assert [each.reason for each in refusals(published)] == ["unreadable_image"]


def test_a_path_that_looks_like_a_name_by_content_must_be_there(make_sft: Make) -> None:
    published = build(make_sft([*ROWS, chat("<image>", f"{'0' * 64}.png")]), "sft_tokens", "mine")
    assert [each.reason for each in refusals(published)] == ["missing_image"]
