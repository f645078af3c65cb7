"""Instructions that are written out by hand: (instruction, input, output)."""

from __future__ import annotations

INSTRUCTIONS: tuple[tuple[str, str, str], ...] = (
    ("Write a Python function that returns the larger of two numbers.", "", "def larger(a, b):\n    return a if a > b else b"),
    (
        "Write a Python function that counts the vowels in a text.",
        "",
        'def count_vowels(text):\n    return sum(letter in "aeiou" for letter in text.lower())',
    ),
    (
        "Write a Python generator of the Fibonacci numbers.",
        "",
        "def fibonacci():\n    a, b = 0, 1\n    while True:\n        yield a\n        a, b = b, a + b",
    ),
    (
        "Show how to read a text file line by line in Python.",
        "",
        'with open("notes.txt", encoding="utf-8") as file:\n    for line in file:\n        print(line.rstrip())',
    ),
    (
        "Write a Python function that tells whether a word is a palindrome.",
        "",
        "def is_palindrome(word):\n    word = word.casefold()\n    return word == word[::-1]",
    ),
    (
        "Find the mistake in this code and correct it.",
        "def mean(numbers):\n    return sum(numbers) / len(number)",
        "The name in `len` lacks its last letter:\n\ndef mean(numbers):\n    return sum(numbers) / len(numbers)",
    ),
    (
        "Explain what this line does.",
        "squares = {n: n * n for n in range(5)}",
        "It builds a dictionary from each number 0 to 4 to its square: {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}.",
    ),
    (
        "Rewrite this loop as a list comprehension.",
        "result = []\nfor word in words:\n    if word:\n        result.append(word.upper())",
        "result = [word.upper() for word in words if word]",
    ),
    (
        "Write a Python function for the greatest common divisor of two whole numbers.",
        "",
        "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return abs(a)",
    ),
    ("What does the command `ls -l` do?", "", "It lists the files of a folder, one a line, with permissions, owner, size and date."),
    ("Translate to French.", "Good evening, where is the railway station?", "Bonsoir, où est la gare ?"),
    ("Translate to Spanish.", "The boy reads a book under the tree.", "El niño lee un libro debajo del árbol."),
    ("Translate to German.", "The street is longer than the bridge.", "Die Straße ist länger als die Brücke."),
    ("把下面的句子翻译成英文。", "今天天气很好，我们去公园吧。", "The weather is lovely today; let's go to the park."),
    ("请列出四个季节。", "", "春天\n夏天\n秋天\n冬天"),
    ("用一句话解释什么是彩虹。", "", "彩虹是阳光在雨滴中折射和反射后形成的七彩光弧。🌈"),
    ("Count to five in Mandarin Chinese with pinyin.", "", "一 yī\n二 èr\n三 sān\n四 sì\n五 wǔ"),
    ("Say good night in five languages.", "", "Good night\nBonne nuit\nBuenas noches\nGute Nacht\n晚安"),
    ("Which accents are missing?", "El nino tomo cafe manana.", "El niño tomó café mañana."),
    ("Pick one emoji for each word.", "sun, rain, snow, wind", "sun ☀️\nrain 🌧️\nsnow ❄️\nwind 🌬️"),
    ("What do these emoji say?", "🐟 ➡️ 🍳 ➡️ 😋", "Somebody caught or bought a fish, fried it and enjoyed it."),
    ("Write a haiku about the first snow.", "", "Quiet on the roofs,\nall the footprints start again,\neven the cat waits."),
    ("Write a limerick about a snail.", "", (
        "A snail who lived under a stair\nset out for the village's fair.\nShe arrived in July,\nlooked around with a sigh:\n"
        "there was no one but her anywhere."
    )),
    ("Write a two-line rhyme about tea.", "", "A cup of tea, a window seat:\nthe rain outside now sounds so sweet."),
    (
        "Write a short e-mail that moves a meeting from Tuesday to Thursday.",
        "",
        "Dear all,\n\ncould we move our meeting from Tuesday to Thursday, same time and place? Please tell me by noon "
        "if this doesn't suit you.\n\nBest wishes\nNadia",
    ),
    (
        "Make this sentence more polite.",
        "Send me the file now.",
        "Could you please send me the file when you have a moment?",
    ),
    ("Give three tips for a good photograph.", "", (
        "1. Get closer than you think.\n2. Let the light fall from the side.\n"
        "3. Look at the edges of the picture before you press the button."
    )),
    ("List the steps for planting a tree.", "", (
        "1. Dig a hole twice as wide as the roots.\n2. Set the tree so that the root collar is level with the ground.\n"
        "3. Fill in the soil and press it gently.\n4. Tie the tree to a stake.\n5. Water it well, also in the following weeks."
    )),
    ("Name the parts of a bicycle that touch the rider.", "", "The saddle, the handlebar grips and the pedals."),
    ("Suggest a name for a bakery near the sea.", "", "Salt & Crumb"),
    ("Explain the difference between weather and climate.", "", (
        "Weather is what happens on a given day; climate is the pattern of weather over decades. Climate helps you choose a coat to buy, "
        "weather whether to wear it today."
    )),
    ("Complete the proverb.", "Many hands make", "Many hands make light work."),
    ("Turn the notes into one sentence.", "library, Saturday, closed, painting", "The library is closed on Saturday for painting."),
    ("Which word does not belong?", "oak, birch, tulip, maple", "Tulip: the others are trees."),
    ("Give the plural.", "mouse, leaf, child, sheep", "mice, leaves, children, sheep"),
    ("Write the next three numbers.", "2, 4, 8, 16", "32, 64, 128"),
    ("What is the opposite of each word?", "early, empty, ancient, shallow", "late, full, modern, deep"),
    ("Put the days in order.", "Friday, Monday, Wednesday", "Monday, Wednesday, Friday"),
    ("Describe an owl without the word 'bird'.", "", (
        "A silent hunter with a round face, great eyes that cannot turn, and a head that can. It sleeps in the barn and works at night."
    )),
    ("How many sides do these shapes have in all?", "a triangle, a square and a hexagon", "3 + 4 + 6 = 13 sides"),
)  # fmt: skip
