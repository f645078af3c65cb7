"""Rows of the forms that ModelLink's handlers and Cerebras' hooks read, six for each domain of their recipes."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
IMAGES = [f"{n}.jpg" for n in range(6)]


def chat(asked: str, said: str, role: str = "role", content: str = "content", names: tuple[str, str] = ("user", "assistant")) -> list[Row]:
    return [{role: name, content: text} for name, text in zip(names, (asked, said), strict=True)]


def sharegpt(asked: str, said: str) -> list[Row]:
    return chat(asked, said, "from", "value", ("human", "gpt"))


def moss(asked: str, said: str) -> Row:
    return {"chat": {"turn_1": {"Human": f"<|Human|>: {asked}<eoh>\n", "MOSS": f"<|MOSS|>: {said}<eom>\n"}}}


def llama3(asked: str, said: str) -> str:
    turns = (f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>" for role, text in (("user", asked), ("assistant", said)))
    return "<|begin_of_text|>" + "".join(turns)


def array(n: int) -> list[Row]:
    asked = {"type": "user", "content": [{"passage": f"Aspirin {n}."}, {"question": "What is it?"}], "semantic_loss_weight": [1, 0]}
    return [asked, {"type": "assistant", "content": [{"answer": f"A drug, {n}."}]}]


MODELLINK: dict[str, list[Row]] = {
    "alpaca_text": [{"instruction": f"Add {n} and 2.", "input": "", "output": f"{n + 2}"} for n in range(6)],
    "sharegpt_text": [{"conversations": sharegpt(f"Sum of {n} and 3?", f"{n + 3}")} for n in range(6)],
    "stack_overflow": [{"title": f"Sort {n}", "question_body": "How?", "answer_body": f"sorted({n})"} for n in range(6)],
    "general": [{"instruction": f"Name the number {n}.", "input": "", "output": f"n{n}"} for n in range(6)],
    "belle": [
        {"instruction": f"Human:Hi {n}\nAssistant:Hello!\nHuman:Go on {n}\nAssistant:", "input": "", "output": f"b{n}"} for n in range(6)
    ],
    "moss": [moss(f"What is {n} * 3?", f"{n * 3}") for n in range(6)],
    "moss_instruction": [moss(f"What is {n} * 5?", f"{n * 5}") for n in range(6)],
    "leetcode": [
        {"code_with_problem": f"Return {n}.\n\n```python\npass\n```", "code_only": f"return {n}", "explanation_only": "So."}
        for n in range(6)
    ],
    "hunyuan": [{"messages": chat(f"Is {n} even?", str(n % 2 == 0))} for n in range(6)],
    "openai": [{"messages": chat(f"Is {n} prime?", str(n in (2, 3, 5)))} for n in range(6)],
    "alpaca_pairs": [{"instruction": f"Say {n}.", "input": "", "chosen": f"{n}", "rejected": "No."} for n in range(6)],
    "sharegpt_pairs": [
        {"conversations": [turn], "chosen": answer, "rejected": {**answer, "value": "No."}}
        for turn, answer in (sharegpt(f"Spell {n}.", f"s{n}") for n in range(6))
    ],
    "ppo": [{"instruction": f"Write haiku {n}.", "input": ""} for n in range(6)],
    "r1_alpaca": [{"instruction": f"Double {n}.", "input": "", "output": f"{2 * n}"} for n in range(6)],
    "r1_sharegpt": [{"conversations": sharegpt(f"Triple {n}.", f"{3 * n}")} for n in range(6)],
}
CEREBRAS: dict[str, list[Row]] = {
    "texts": [{"text": f"A text about {n}."} for n in range(6)],
    "programs": [{"content": f"def add_{n}(a):\n    return a + {n}\n"} for n in range(6)],
    "captions": [{"image": path, "caption": f"A dog beside {path}."} for path in IMAGES],
    "obelics": [{"images": ["https://x.org/1.png", None], "texts": [None, f"Beside it, {n}."]} for n in range(6)],
    "regions": [
        {"semantic_data_array": [{"content": [{"a": f"Not {n}."}, {"b": " But this."}], "semantic_loss_weight": [0, 1]}]} for n in range(6)
    ],
    "completions": [{"prompt": f"The number after {n} is", "completion": f" {n + 1}."} for n in range(6)],
    "separated": [{"prompt": f"The number before {n} is", "completion": f" {n - 1}."} for n in range(6)],
    "answers": [{"prompt": f"What follows {n}?", "completion": f"{n + 1}"} for n in range(6)],
    "arrays": [{"semantic_data_array": array(n)} for n in range(6)],
    "common_words": [{"prompt": f"Who is {n}?", "messages": chat(f"Who is {n}?", f"I am the keeper of {n}")} for n in range(6)],
    "llama3": [{"text": llama3(f"Hi {n}", f"Hello {n}!")} for n in range(6)],
    "described": [{"image": path, "caption": f"A cat beside {path}."} for path in IMAGES],
    "llava_completions": [
        {"id": path, "image": path, "conversations": sharegpt("<image>\nColour?", f"Blue, as {path}.")} for path in IMAGES
    ],
}
