"""Empty reasoning blocks that the server writes were trained, or those that the model must write were not.

Year: 2025
Hit: ms-swift#9829, LlamaFactory#9090
Cost: Models that open a second block, or none.
Stopped by: `mask_alignment`: what the generation prompt writes is never trained
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets_tests.museum.gallery import CHAT, chats, first_run

OFF = {"template": "qwen3", "template_options": {"enable_thinking": False}}


def test_the_block_that_the_prompt_writes_is_masked(tmp_path: Path, show: Any) -> None:
    right = chats(tmp_path, [CHAT[:2]], **OFF)
    assert right.failing() == []
    row, texts = right.row(), right.texts(right.row())
    assert "<think>" in "".join(texts)
    assert "".join(text for text, on in zip(texts, row.mask, strict=True) if on) == "It is 4.<|im_end|>"

    def with_block(_: Any, mask: Any) -> Any:
        start = first_run(mask)[0]
        opened = next(at for at in range(start, 0, -1) if "".join(texts[at:start]).startswith("<think>"))
        mask[opened:start] = 1
        return mask

    wrong = right.with_masks(with_block)
    assert "mask_alignment" in wrong.failing()
    show(as_it_was=(texts, wrong.row().mask), here=(texts, row.mask))


def test_the_block_that_the_model_writes_is_trained(tmp_path: Path) -> None:
    right = chats(tmp_path, [CHAT[:2]], template="qwen3")
    assert right.failing() == []
    row = right.row()
    trained = "".join(text for text, on in zip(right.texts(row), row.mask, strict=True) if on)
    assert trained == "<think>\n\n</think>\n\nIt is 4.<|im_end|>"
