"""``leetcode_python``: LeetCode problems with Python solutions and their explanation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.samples import ASSISTANT, USER, Sample, turn
from prep_assets.schemas.fields import needed, texts_of
from prep_assets.schemas.registry import Convert, schema

EXAMPLE = {
    "code_with_problem": "Return the sum of two numbers.\n\n```python\ndef add(a, b):\n    return a + b\n```",
    "code_only": "def add(a, b):\n    return a + b\n",
    "explanation_only": "It adds the two numbers.",
}


@schema("leetcode_python", gives=Sample, example=EXAMPLE, aliases=("LeetcodePythonInstructionHandler",))
def leetcode_python(
    *, problem_key: str = "code_with_problem", code_key: str = "code_only", explanation_key: str = "explanation_only"
) -> Convert:
    """The problem (the text before the first ``` fence, stripped), answered with code, a line break and the explanation.

    Options:
        problem_key: field with the problem and, after a fence, its code.
        code_key: field with the code.
        explanation_key: field with the explanation.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        problem, code, explanation = texts_of(row, problem_key, code_key, explanation_key)
        user = needed(problem.partition("```")[0].strip(), "empty_prompt", problem_key)
        needed(code, "empty_answer", code_key)
        return Sample((turn(USER, user), turn(ASSISTANT, f"{code}\n{explanation}")))

    return convert
