"""Chats that are written out by hand: an optional system message and rounds of (user, assistant)."""

from __future__ import annotations

CHATS: tuple[tuple[str | None, tuple[tuple[str, str], ...]], ...] = (
    (None, (("Hello!", "Hello! What can I do for you today?"), ("Nothing yet, thanks.", "All right. I'm here when you need me."))),
    (
        "You are a concise Python tutor.",
        (
            (
                "How do I reverse a list?",
                "Use slicing for a copy:\n```python\nbackwards = items[::-1]\n```\nor `items.reverse()` in place.",
            ),
            ("What does the -1 mean?", "It is the step. A slice is `start:stop:step`, and a negative step walks backwards."),
            (
                "And how do I loop backwards without a copy?",
                "```python\nfor item in reversed(items):\n    print(item)\n```\n`reversed` gives an iterator, so nothing is copied.",
            ),
        ),
    ),
    (
        None,
        (
            ("你好！你会说中文吗？", "你好！会的，我们可以用中文聊天。"),
            ("请给我推荐一种茶。", "如果你喜欢清香，可以试试龙井；如果喜欢浓一些，可以试试普洱。"),
            ("谢谢你！", "不客气，祝你喝茶愉快！🍵"),
        ),
    ),
    (
        "Answer in the language of the user.",
        (
            ("Comment dit-on « butterfly » en français ?", "On dit « papillon »."),
            ("¿Y en español?", "En español se dice «mariposa»."),
            ("Und auf Deutsch?", "Auf Deutsch heißt es „Schmetterling“."),
            ("日本語では？", "日本語では「蝶」（ちょう）と言います。"),
        ),
    ),
    (
        "You are a librarian who asks before recommending.",
        (
            ("I want to read something.", "Gladly! Do you prefer something true or something invented?"),
            ("Invented, but not sad.", "Short and funny, or long and adventurous?"),
            ("Long.", "Then take a novel with a map on the first page. They are rarely sad for long, and never short. 📚"),
        ),
    ),
    (
        None,
        (
            (
                "Please turn this into a list: milk, two lemons, bread and some rice.",
                "- milk\n- 2 lemons\n- bread\n- rice",
            ),
            ("Add eggs at the top.", "- eggs\n- milk\n- 2 lemons\n- bread\n- rice"),
            ("Remove the bread.", "- eggs\n- milk\n- 2 lemons\n- rice"),
        ),
    ),
    (
        "You keep the score in a quiz. Be brief.",
        (
            ("Blue gets three points, red gets one.", "Blue 3, red 1."),
            ("Red gets five more.", "Blue 3, red 6."),
            ("Blue doubles its points.", "Blue 6, red 6. A tie!"),
            ("Last question: blue is right and gets one.", "Blue 7, red 6."),
            ("Who wins?", "Blue wins by one point. 🎉"),
        ),
    ),
    (None, (("What is 15 % of 80?", "15 % of 80 is 0.15 × 80 = 12."),)),
    (
        None,
        (
            ("Write a haiku about a lighthouse.", "Rain over dark rocks,\none slow arm of light returns,\ncounting all the ships."),
            ("Now one about the keeper.", "Tea beside the lamp,\nhe writes down the names of clouds\nno one else will read."),
        ),
    ),
    (
        "You explain things to children of about eight.",
        (
            (
                "Why is the sky blue?",
                "Sunlight is a mix of all colours. The air bounces the blue part around much more than the red part, so blue light reaches "
                "your eyes from everywhere in the sky.",
            ),
            (
                "Then why is the sunset red?",
                "In the evening the light comes a long way through the air. Most of the blue is lost, and red is left over.",
            ),
        ),
    ),
    (
        "You help with JSON. Reply with JSON only.",
        (
            ("Name: Ada, age 36, likes maths and poetry.", '{"name": "Ada", "age": 36, "likes": ["maths", "poetry"]}'),
            ("She moved to London.", '{"name": "Ada", "age": 36, "likes": ["maths", "poetry"], "city": "London"}'),
        ),
    ),
    (None, (("Is zero an even number?", "Yes. An even number is a multiple of two, and 0 = 2 × 0."),)),
)
