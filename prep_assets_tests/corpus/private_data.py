"""Private data that is made up, and sentences in eight languages to hold it."""

from __future__ import annotations

import random

from stdnum import iban, luhn

SENTENCES = (
    *("Please write to {} before Friday.", "Escribe a {} antes del viernes.", "Écrivez à {} avant vendredi."),
    *("Schreib bitte an {} bis Freitag.", "Scrivi a {} entro venerdì.", "Напишите на {} до пятницы.", "请在周五之前联系 {} 。"),
    *("金曜日までに {} に連絡してください。",),
)


def planted(chance: random.Random, kind: str) -> str:
    """A value of a kind, made up."""
    digits = "".join(map(str, (chance.randrange(10) for _ in range(40))))
    letters = "".join(chance.choices("ABCDEFGHJKLMNPQRSTUVWXYZ234567abcdefghijkmnopqrstuvwxyz", k=64))
    if kind == "email":
        return f"{chance.choice(('anna', 'j.smith', 'li-wei', 'o_k+news'))}{digits[:3]}@{chance.choice(('mail.ru', 'gmail.com', 'uni-koeln.de'))}"
    if kind == "phone":
        return chance.choice(
            (f"+49 30 {digits[:7]}", f"+1-202-5{digits[:2]}-{digits[3:7]}", f"+34 6{digits[:2]} {digits[2:5]} {digits[5:8]}")
        )
    if kind == "ip":
        return f"{chance.choice((8, 31, 93, 140))}.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
    if kind == "card":
        body = f"4{digits[:14]}"
        check = next(str(last) for last in range(10) if luhn.is_valid(body + str(last)))
        return chance.choice(("{}{}{}{}", "{} {} {} {}", "{}-{}-{}-{}")).format(*((body + check)[at : at + 4] for at in range(0, 16, 4)))
    if kind == "iban":
        bank = digits[:18]
        check = next(f"{number:02}" for number in range(2, 99) if iban.is_valid(f"DE{number:02}{bank}", check_country=False))
        return f"DE{check}{bank}"
    if kind == "national_id":
        body = f"440305{chance.randrange(1950, 2000)}{chance.randrange(1, 13):02}{chance.randrange(1, 29):02}{digits[:3]}"
        china = body + "10X98765432"[sum(int(digit) * 2 ** (17 - at) for at, digit in enumerate(body)) % 11]
        return chance.choice(
            (china, digits[:8] + "TRWAGMYFPDXBNJZSQVHLCKE"[int(digits[:8]) % 23], f"1{digits[:2]}-4{digits[2]}-5{digits[3:6]}")
        )
    upper = letters.upper().replace("0", "A").replace("1", "A").replace("8", "A").replace("9", "A")
    return chance.choice(
        (
            f"AKIA{upper[:16]}",
            f"ghp_{letters[:36]}",
            f"sk-proj-{letters[:48]}",
            f"xoxb-{digits[:12]}-{letters[:20]}",
            f"hf_{'aBcDe' * 7}"[:37],
        )
    )
