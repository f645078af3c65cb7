"""LLaVA, captions and interleaved documents."""

from __future__ import annotations

import hashlib

import pytest

from prep_assets.samples import IMAGE, TEXT, Region, Turn


def llava(*values, image="i.jpg"):
    return {"image": image, "conversations": [{"from": ("human", "gpt")[i % 2], "value": value} for i, value in enumerate(values)]}


def test_the_image_comes_first_and_the_text_is_what_stands_around_its_mark(convert) -> None:
    for value, text in (("<image>\nWhat?", "What?"), ("What?\n<image>", "What?"), (" Left <image> right ", "Leftright")):
        user = convert("llava", llava(value, " It is. ")).turns[0]
        assert user.regions == (Region(IMAGE, "i.jpg"), Region(TEXT, text))
    assert convert("llava", llava("<image>", " It is. ")).turns == (
        Turn("user", (Region(IMAGE, "i.jpg"),)),
        Turn("assistant", (Region(TEXT, "It is."),)),
    )


def test_phase_one_drops_the_text_beside_an_image_only(convert) -> None:
    row = llava("<image>\nWhat?", "a", "And now?", "b")
    first, _, second, _ = convert("llava", row, phase=1).turns
    assert first.regions == (Region(IMAGE, "i.jpg"), Region(TEXT, "What?", drop=True))
    assert second.regions == (Region(TEXT, "And now?"),)
    assert convert("llava", row).turns[0].regions[1].drop is False


def test_hooks_of_both_kinds(convert, refusal) -> None:
    row = {"p": {"path": "i.jpg"}, "c": [{"r": "user", "v": "<img>What?"}, {"r": "assistant", "v": "a"}]}
    keys = {"multi_turn_key": "c", "image_key": "p", "multi_turn_role_key": "r", "multi_turn_content_key": "v", "image_token": "<img>"}
    assert [turn.role for turn in convert("finetuning_llava_hook", row, **keys, phase=1).turns] == ["user", "assistant"]
    plain = convert("finetuning_llava_hook_prompt_completion", row, **keys, phase=1)
    assert plain.turns[0] == Turn("prompt", (Region(IMAGE, "i.jpg"), Region(TEXT, "What?", drop=True)))
    assert plain.turns[1].role == "completion"
    system = {**row, "c": [{"r": "system", "v": "s"}, *row["c"]]}
    assert convert("finetuning_llava_hook", system, **keys).turns[0].role == "system"
    assert refusal("finetuning_llava_hook_prompt_completion", system, **keys).reason == "unknown_role"
    text = {"c": [{"r": "user", "v": "q"}, {"r": "assistant", "v": "a"}]}
    assert len(convert("finetuning_llava_hook", text, **keys).turns) == 2
    assert refusal("finetuning_llava_hook_prompt_completion", text, **keys).reason == "missing_field"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (llava("<image><image>", "a"), "image_count"),
        (llava("<image>", "a <image>"), "image_count"),
        (llava("no mark", "a"), "image_count"),
        (llava("<image>", "a", image=None), "missing_image"),
        (llava("<image>", "a", image=""), "missing_image"),
        (llava("<image>", " "), "empty_answer"),
        (llava("<image>", "a", " ", "b"), "empty_turn"),
        (llava("<image>"), "no_assistant_turn"),
        (llava("<image>", 5), "wrong_type"),
        ({"image": "i.jpg", "conversations": [{"from": "bot", "value": "x"}]}, "unknown_role"),
    ],
)
def test_llava_refuses(refusal, row, reason) -> None:
    assert refusal("llava", row).reason == reason


def test_captions(convert, refusal) -> None:
    row = {"img": {"path": "i.jpg", "bytes": None}, "cap": "A dog."}
    keys = {"image_key": "img", "caption_key": "cap"}
    expected = (Turn("prompt", (Region(IMAGE, "i.jpg"),)), Turn("completion", (Region(TEXT, "A dog."),)))
    for name in ("image_captions", "finetuning_image_captions_hook"):
        assert convert(name, row, **keys).turns == expected
    document = Turn("document", (Region(IMAGE, "i.jpg", 0.0), Region(TEXT, "A dog.")))
    assert convert("pretraining_image_captions_hook", row, **keys).turns == (document,)
    assert convert("image_captions", row, **keys, pretraining=True).turns == (document,)
    assert refusal("image_captions", {**row, "cap": ""}, **keys).reason == "empty_answer"
    assert refusal("image_captions", {**row, "img": {"bytes": "x"}}, **keys).reason == "missing_field"


def test_interleaved_documents_keep_their_order(convert) -> None:
    row = {"images": [None, "u/1.jpg", "u/2.jpg", None], "texts": ["a", None, None, "b"]}
    (document,) = convert("interleaved", row).turns
    assert document.role == "document"
    assert [(r.kind, r.text, r.loss_weight) for r in document.regions] == [
        (TEXT, "a", None),
        (IMAGE, "u/1.jpg", 0.0),
        (IMAGE, "u/2.jpg", 0.0),
        (TEXT, "b", None),
    ]


def test_the_obelics_hook_names_downloads_by_the_hash_of_their_file_name(convert) -> None:
    row = {"image": ["https://x.org/a/cat.jpg?w=5", None], "caption": [None, "t"]}
    name = hashlib.sha256(b"cat.jpg").hexdigest()[:10] + ".png"
    assert convert("obelics_hook", row, image_dir="/images").turns[0].regions[0].text == f"/images/{name}"
    assert convert("obelics_hook", row).turns[0].regions[0].text == "https://x.org/a/cat.jpg?w=5"


@pytest.mark.parametrize(
    ("images", "texts", "options", "reason"),
    [
        (["i"], ["a", "b"], {}, "length_mismatch"),
        ([None], [None], {}, "interleaving"),
        (["i"], ["a"], {}, "interleaving"),
        ([], [], {}, "empty_text"),
        ([None], [" "], {}, "empty_text"),
        ([5], [None], {}, "wrong_type"),
        (["https://x.org/.png"], [None], {"image_dir": "d"}, "missing_image"),
        (["https://x.org/"], [None], {"image_dir": "d"}, "missing_image"),
        (["https://[x"], [None], {"image_dir": "d"}, "missing_image"),
    ],
)
def test_interleaved_refuses(refusal, images, texts, options, reason) -> None:
    assert refusal("interleaved", {"images": images, "texts": texts}, **options).reason == reason
