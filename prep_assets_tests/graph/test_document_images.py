"""Images in documents: tokens at their places, masked, and documents without any as they were; families that refuse images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prep_assets.config.models import Pretrain
from prep_assets.errors import ConfigError
from prep_assets.pipeline.images import stored_image_id
from prep_assets.stores.tokens import open_tokens
from prep_assets_tests.graph.pictures import TOKEN, digest, listed, pictures_in, tokenizer_in
from prep_assets_tests.graph.workspaces import build, build_all, domain, failing, jsonl, part_of, refusals, workspace_in

DOCUMENTS = [
    {"images": [None], "texts": ["No image."]},
    {"images": [None, "1.png", None], "texts": ["A picture:", None, f"It has {TOKEN} in it."]},
    {"images": ["sub/2.png", "1.png", None], "texts": [None, None, "Two."]},
    {"images": ["gone.png", None], "texts": [None, "Gone."]},
    {"images": ["1.png"], "texts": [None]},
]


@pytest.mark.parametrize("storage", ["h5", "bin"])
@pytest.mark.parametrize("patches", [1, 3])
def test_documents_with_images(tmp_path: Path, storage: str, patches: int) -> None:
    own = domain(jsonl(tmp_path / "rows.jsonl", DOCUMENTS), "interleaved", image_dir=str(pictures_in(tmp_path, "1.png", "sub/2.png")))
    options = {"tokenizer": tokenizer_in(tmp_path), "image_token": TOKEN, "image_patches": patches, "output": {"storage_format": storage}}
    workspace = workspace_in(tmp_path, {"pretrain": {**options, "domains": {"mine": own, "docs": domain("docs.jsonl.zst", "text")}}})
    published = build_all(workspace, ["pretrain"])
    assert [failing(workspace, each) for each in published.values()] == [[]] * len(published)
    mine = published["pretrain_tokens", "mine"]
    assert sorted(each.reason for each in refusals(mine)) == ["missing_image", "too_short"]
    store = open_tokens(mine.directory, "mine_train")
    assert [(record, path, sha256) for record, *_, path, sha256 in listed(store)] == [
        (1, "1.png", digest("1.png")),
        (2, "sub/2.png", digest("sub/2.png")),
        (2, "1.png", digest("1.png")),
    ]
    tokens, mask = (np.asarray(store.arrays[key][:]) for key in ("tokens", "loss_mask"))
    token = stored_image_id(workspace, workspace.family(Pretrain))
    assert (mask == (tokens != token)).all() and (mask == 0).sum() == 3 * patches
    plain = open_tokens(published["pretrain_tokens", "docs"].directory, "docs_train")
    assert list(plain.arrays) == ["tokens"] and len(plain.images) == 0


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
        assert failing(workspace, published) == []
        stores.append(
            [
                [store.record(i, "tokens").tolist() for i in range(len(store)) if i not in store.images.record]
                for store in (open_tokens(published.directory, "mine_train"), open_tokens(published.directory, "mine_dev"))
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
    build(workspace, "pretrain_raw", "mine")
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
