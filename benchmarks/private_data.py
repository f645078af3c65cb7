"""Recall and precision of `private_data` on invented values: 800 of seven kinds in sixteen languages and in markup, and 500 look-alikes that are nobody's.

    python benchmarks/private_data.py [--misses]

A value counts as found if its kind and its characters are those that were planted, no more and no less. `--misses` lists all others. The table stands on the
page about quality; `prep_assets_tests/quality/test_figures.py` makes it again.
"""

from __future__ import annotations

import argparse
import random
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from prep_assets.extensions.quality import redaction

SEED = 20
BEHIND = "\x1f"
"""Behind what names a value and is no part of it."""
LANGUAGES: Mapping[str, tuple[str, ...]] = {
    "en": (
        "Please send the contract to {} before the end of the week, and tell me when it is done.",
        "I asked him twice, and he wrote down {}",
    ),
    "de": (
        "Bitte notieren Sie sich {} und geben Sie uns bis Freitag Bescheid, ob alles stimmt.",
        "Im Schreiben vom Mai steht {}, das ist noch gültig.",
    ),
    "fr": (
        "Vous pouvez nous joindre ici : {} ; nous répondons tous les jours ouvrables.",
        "Elle m'a donné {} hier soir, après la réunion.",
    ),
    "es": ("Apunte por favor {} y avísenos antes del viernes si algo ha cambiado.", "En la carta del mes pasado figura {}."),
    "it": ("Può scrivere o chiamare a questo recapito: {}, siamo aperti tutti i giorni.", "Nella lettera che mi ha mandato c'era {}"),
    "pt": ("Por favor, anote {} e avise-nos se alguma coisa mudar até sexta-feira.", "Na carta que recebemos ontem está {}."),
    "nl": ("Noteer alstublieft {} en laat ons voor vrijdag weten of alles klopt.", "In de brief van vorige maand staat {}."),
    "pl": ("Proszę zapisać {} i dać nam znać do piątku, czy wszystko się zgadza.", "W liście z zeszłego miesiąca jest {}."),
    "sv": ("Skriv upp {} och hör av dig före fredag om något har ändrats.", "I brevet från förra månaden står det {}."),
    "ru": ("Запишите, пожалуйста, {} и сообщите нам до пятницы, всё ли верно.", "В письме за прошлый месяц указано {}."),
    "tr": ("Lütfen {} bilgisini not alın ve cumaya kadar bize haber verin.", "Geçen ay gelen mektupta {} yazıyordu."),
    "zh": ("请您记下{}，并在周五之前告诉我们是否正确。", "上个月的信里写的是{}。"),
    "ja": ("お手数ですが{}までご連絡いただけますようお願いいたします。", "先月の手紙には{}と書いてありました。"),
    "ko": ("번거로우시겠지만 {}(으)로 금요일까지 연락해 주시기 바랍니다.", "지난달 편지에는 {} 라고 적혀 있었습니다."),
    "ar": ("يرجى تدوين {} وإبلاغنا قبل يوم الجمعة إذا تغير شيء.", "في رسالة الشهر الماضي ورد {}."),
    "hi": ("कृपया {} लिख लें और शुक्रवार तक हमें बताएं कि सब ठीक है या नहीं।", "पिछले महीने के पत्र में {} लिखा था।"),
}
MARKUP: Mapping[str, tuple[str, ...]] = {
    "Markdown": ("**{}**", "_{}_", "*{}*", "- {}", "1. {}", "> {}", "| name | {} | 12 |", "`{}`", "## {}", "[write]({})", "~~{}~~"),
    "JSON": ('{{"contact": "{}", "n": 3}}', '["{}", "x"]', '{{"text": "see {} above\\n"}}', '{{"a":{{"b":"{}"}}}}'),
    "code": (
        'send("{}")',
        "owner = '{}'  # see the file",
        "curl -H 'X: {}' https://api.acme.io/v1",
        "// {}",
        "export VALUE={}",
        "/* {} */",
        "f(x, `{}`)",
    ),
    "tables and logs": (
        "7;{};2024-05-06",
        "2024-05-06 12:00:01 INFO value={} took 31 ms",
        "<td>{}</td>",
        "name\t{}\t0.75",
        "<{}>",
        "({})",
        "“{}”",
    ),
}
FORMS = {**LANGUAGES, **MARKUP}


class Inventor:
    """Invents values with a generator of its own."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def digits(self, count: int, first: str = "123456789") -> str:
        return self.chance.choice(first) + "".join(self.chance.choices(string.digits, k=count - 1)) if count else ""

    def of(self, alphabet: str, count: int) -> str:
        return "".join(self.chance.choices(alphabet, k=count))

    def spaced(self, text: str, sizes: Sequence[int], separators: Sequence[str]) -> str:
        """A text in groups, between them one separator."""
        parts, at = [], 0
        for size in sizes:
            parts.append(text[at : at + size])
            at += size
        return self.chance.choice(separators).join(filter(None, [*parts, text[at:]]))

    # -- cards (ISO/IEC 7812-1)

    def card(self) -> str:
        brand, length, sizes = self.chance.choice(
            (
                ("4", 16, (4, 4, 4)),
                ("4", 16, (4, 4, 4)),
                (str(self.chance.randrange(51, 56)), 16, (4, 4, 4)),
                (str(self.chance.randrange(2221, 2721)), 16, (4, 4, 4)),
                (self.chance.choice(("34", "37")), 15, (4, 6)),
                (self.chance.choice(("6011", "65")), 16, (4, 4, 4)),
                (self.chance.choice(("36", "38")), 14, (4, 6)),
                (str(self.chance.randrange(3528, 3590)), 16, (4, 4, 4)),
                ("62", self.chance.choice((16, 19)), (4, 4, 4)),
                ("4", 13, (4, 3, 3)),
            )
        )
        body = brand + self.of(string.digits, length - len(brand) - 1)
        total = sum(int(digit) if at % 2 else sum(map(int, str(2 * int(digit)))) for at, digit in enumerate(reversed(body)))
        return self.spaced(body + str(-total % 10), sizes, ("", " ", " ", "-", "\u00a0", "\u202f", "\u2011", ",", "|", "/", "&nbsp;"))

    def with_card(self) -> str:
        """What follows cards: an expiry date, a code, another number, a word."""
        month, year = f"{self.chance.randrange(1, 13):02}", self.chance.randrange(26, 32)
        return self.chance.choice(
            (
                "",
                "",
                "",
                f" {month}/{year}",
                f" {month}/{year} {self.digits(3)}",
                f" exp {month}/20{year}",
                f" {self.digits(3)}",
                f", CVV {self.digits(3)}",
                " VISA",
            )
        )

    # -- IBANs (ISO 13616): n digits, a letters, c both

    COUNTRIES = (
        "DE18n FR10n11c2n ES20n IT1a10n12c NL4a10n BE12n AT16n CH5n12c GB4a14n SE20n PL24n PT21n IE4a14n SA2n18c AE19n TR6n16c NO11n DK14n FI14n CZ20n "
        "RO4a16c GR7n16c HU24n BR23n1a1c IL19n UA6n19c LU3n13c HR17n SK20n SI15n"
    )

    def iban(self) -> str:
        entry = self.chance.choice(self.COUNTRIES.split())
        country, body, number = entry[:2], "", ""
        for character in entry[2:]:
            if character.isdigit():
                number += character
                continue
            body += self.of(
                {"n": string.digits, "a": string.ascii_uppercase, "c": string.digits + string.ascii_uppercase}[character], int(number)
            )
            number = ""
        check = 98 - int("".join(str(int(letter, 36)) for letter in f"{body}{country}00")) % 97
        whole = self.spaced(f"{country}{check:02}{body}", [4] * 8, ("", "", " ", " ", " ", "-", "\u00a0", "\u202f"))
        return whole.lower() if self.chance.random() < 0.2 else whole

    def with_iban(self) -> str:
        return self.chance.choice(
            ("", "", "", " BIC CAIXESBBXXX", " EUR", " BANK", " and pay", ", BIC: COBADEFF", " 2024-05-06", " 1200 EUR")
        )

    # -- national ids, by the rules that countries publish

    def birthday(self, form: str) -> str:
        year, month, day = self.chance.randrange(1950, 2000), self.chance.randrange(1, 13), self.chance.randrange(1, 29)
        return form.format(y=year, yy=year % 100, m=month, d=day)

    def national_id(self) -> str:
        make = self.chance.choice(
            (
                self.us,
                self.es,
                self.nie,
                self.fr,
                self.br,
                self.cn,
                self.se,
                self.fi,
                self.kr,
                self.be,
                self.mx,
                self.cl,
                self.pl,
                self.nl,
                self.de,
            )
        )
        return make()

    def us(self) -> str:
        return f"{self.chance.randrange(100, 600)}-{self.chance.randrange(10, 99)}-{self.chance.randrange(1000, 9999)}"

    def es(self) -> str:
        number = self.digits(8)
        return number + self.chance.choice(("", "-")) + "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23]

    def nie(self) -> str:
        first, number = self.chance.randrange(3), self.of(string.digits, 7)
        return "XYZ"[first] + number + "TRWAGMYFPDXBNJZSQVHLCKE"[int(f"{first}{number}") % 23]

    def fr(self) -> str:
        body = (
            self.chance.choice("12")
            + self.birthday("{yy:02}{m:02}")
            + str(self.chance.randrange(10, 95))
            + f"{self.chance.randrange(1, 500):03}{self.digits(3)}"
        )
        return self.spaced(f"{body}{97 - int(body) % 97:02}", (1, 2, 2, 2, 3, 3), ("", " "))

    def br(self) -> str:
        number = self.of(string.digits, 9)
        for _ in range(2):
            number += str(-sum((len(number) + 1 - at) * int(digit) for at, digit in enumerate(number)) % 11 % 10)
        return f"{number[:3]}.{number[3:6]}.{number[6:9]}-{number[9:]}"

    def cn(self) -> str:
        body = self.chance.choice(("110105", "310104", "440305", "510107")) + self.birthday("{y}{m:02}{d:02}") + self.of(string.digits, 3)
        return body + "10X98765432"[sum(int(digit) * 2 ** (17 - at) for at, digit in enumerate(body)) % 11]

    def se(self) -> str:
        body = self.birthday("{yy:02}{m:02}{d:02}") + self.of(string.digits, 3)
        total = sum(int(digit) if at % 2 else sum(map(int, str(2 * int(digit)))) for at, digit in enumerate(body))
        return f"{body[:6]}-{body[6:]}{-total % 10}"

    def fi(self) -> str:
        day, number = self.birthday("{d:02}{m:02}{yy:02}"), self.chance.randrange(2, 900)
        return f"{day}-{number:03}{'0123456789ABCDEFHJKLMNPRSTUVWXY'[int(f'{day}{number:03}') % 31]}"

    def kr(self) -> str:
        body = (
            self.birthday("{yy:02}{m:02}{d:02}") + self.chance.choice("12") + f"{self.chance.randrange(90):02}{self.of(string.digits, 3)}"
        )
        check = (11 - sum(int(digit) * weight for digit, weight in zip(body, (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5), strict=True)) % 11) % 10
        return f"{body[:6]}-{body[6:]}{check}"

    def be(self) -> str:
        body = self.birthday("{yy:02}{m:02}{d:02}") + f"{self.chance.randrange(1, 998):03}"
        return f"{body[:2]}.{body[2:4]}.{body[4:6]}-{body[6:]}.{97 - int(body) % 97:02}"

    def mx(self) -> str:
        letters = "0123456789ABCDEFGHIJKLMN&OPQRSTUVWXYZ"
        body = f"{self.of('BCDFG', 1)}{self.of('AEO', 1)}{self.of('LMRT', 2)}{self.birthday('{yy:02}{m:02}{d:02}')}{self.of('HM', 1)}DF{self.of('BCDFG', 3)}0"
        return body + str(-sum((18 - at) * letters.index(letter) for at, letter in enumerate(body)) % 10)

    def cl(self) -> str:
        number = str(self.chance.randrange(5_000_000, 25_000_000))
        check = "0123456789K"[-sum(int(digit) * (2 + at % 6) for at, digit in enumerate(reversed(number))) % 11]
        return f"{int(number):,}".replace(",", ".") + f"-{check}"

    def pl(self) -> str:
        body = self.birthday("{yy:02}{m:02}{d:02}") + self.of(string.digits, 4)
        return f"PESEL {BEHIND}" + body + str(-sum(int(digit) * weight for digit, weight in zip(body, (1, 3, 7, 9) * 3, strict=False)) % 10)

    def nl(self) -> str:
        while True:
            body = self.digits(8)
            check = sum(int(digit) * (9 - at) for at, digit in enumerate(body)) % 11
            if check < 10:
                return f"BSN {BEHIND}{body}{check}"

    def de(self) -> str:
        while True:
            body = self.digits(10)
            counts = sorted(Counter(body).values())
            if counts[-1] == 2 and len(counts) == 9:  # one digit twice, one missing
                break
        product = 10
        for digit in body:
            product = ((int(digit) + product) % 10 or 10) * 2 % 11
        return f"Steuer-ID {BEHIND}" + self.spaced(body + str((11 - product) % 10), (2, 3, 3), (" ", ""))

    # -- e-mail

    def email(self) -> str:
        given, family = (
            self.chance.choice(["maria", "olga", "jean", "wei", "anna", "tom", "priya", "lars", "yuki", "omar"]),
            self.chance.choice(["lopez", "ivanova", "durand", "chen", "meier", "hughes", "rao", "berg", "sato", "haddad"]),
        )
        local = self.chance.choice(
            ("{g}.{f}", "{g}_{f}", "{f}{n}", "{g}-{f}", "{g}.{f}+news", "{g}", "{G}.{F}", "{g[0]}{f}", "{g}%{f}", "{n}{g}", "_{g}")
        ).format(g=given, f=family, n=self.digits(2), G=given.title(), F=family.title())
        domain = self.chance.choice(
            (
                "gmail.com",
                "correo.es",
                "uni-koeln.de",
                "mail.ru",
                "qq.com",
                "yahoo.co.jp",
                "acme.io",
                "sub.dept.acme.co.uk",
                "163.com",
                "web.de",
                "naver.com",
                "PROTON.ME",
            )
        )
        if self.chance.random() < 0.1:
            return f"{given}@{self.chance.choice(('münchen-kreis.de', '例子.公司', 'почта.рф', 'xn--mnchen-3ya.de', 'bücher-laden.at'))}"
        return self.chance.choice(self.WRITTEN)(f"{local}@{domain}") if self.chance.random() < 0.4 else f"{local}@{domain}"

    WRITTEN: Sequence[Callable[[str], str]] = (
        lambda mail: mail.replace("@", "%40"),
        lambda mail: mail.replace("@", "&#64;"),
        lambda mail: mail.replace("@", "&#x40;").replace(".", "&#x2e;"),
        lambda mail: mail.replace("@", "&commat;"),
        lambda mail: mail.replace("@", " (at) ").replace(".", " (dot) "),
        lambda mail: mail.replace("@", "[at]"),
        lambda mail: mail.replace("@", " [AT] ").replace(".", "[DOT]"),
        lambda mail: mail.replace("@", "\\u0040"),
        lambda mail: "".join(f"&#{ord(character)};" for character in mail),
        lambda mail: f"mailto:{BEHIND}{mail.replace('.', '%2E').replace('@', '%40')}",
    )

    # -- phone numbers: plans of countries, with # for any digit and N for one from 2 to 9

    INTERNATIONAL = (
        "+49 30 9018####",
        "+49 171 #######",
        "+49 (0) 30 / 90 18 ## ##",
        "+4915112######",
        "+1 415 N55 2###",
        "+1-202-N41-####",
        "+1 (312) 755-####",
        "+16466N5####",
        "+44 20 79## ####",
        "+44 7911 12####",
        "+44791112####",
        "+33 6 12 ## ## ##",
        "+33 1 42 ## ## ##",
        "+34 612 ### ###",
        "+34-91-412-####",
        "+39 06 698# ####",
        "+39 347 #######",
        "+81 90-1234-####",
        "+81 3-52##-####",
        "+86 138 #### ####",
        "+86 10 6552 ####",
        "+7 495 123-##-##",
        "+7 (916) ###-##-##",
        "+55 11 9#### ####",
        "+55 (21) 9####-####",
        "+91 98765 #####",
        "+91-80-4112-####",
        "+966 50 ### ####",
        "+971 50 ### ####",
        "+90 532 ### ## ##",
        "+82 10-2###-####",
        "+48 601 ### ###",
        "+31 6 12## ####",
        "+46 70 ### ## ##",
        "+20 10 #### ####",
        "+61 412 ### ###",
        "+41 79 ### ## ##",
        "+43 660 #######",
        "0049 30 9018####",
        "0033 6 12 ## ## ##",
        "0044 20 79## ####",
        "001 415 N55 2###",
    )
    NATIONAL: Mapping[str, tuple[str, ...]] = {
        "de": ("030 9018####", "0171 #######", "089/ 23######", "(030) 9018####", "0171-#######"),
        "fr": ("06 12 ## ## ##", "01.42.##.##.##", "06-12-##-##-##", "0612######"),
        "es": ("612 ### ###", "91 412 ## ##", "612 ## ## ##"),
        "it": ("06 698# ####", "347 #######", "347 ### ####"),
        "pl": ("601 ### ###", "22 621 ## ##"),
        "nl": ("06 12######", "06-12######", "020 62# ####"),
        "sv": ("070-### ## ##", "08-50# ### ##"),
        "ru": ("8 (495) 123-##-##", "8 916 ###-##-##", "89161######"),
        "zh": ("138########", "010-6552####", "138-####-####"),
        "ja": ("090-1234-####", "03-52##-####", "080-5###-####"),
        "ko": ("010-2###-####", "02-7##-####"),
        "pt": ("(11) 9####-####", "(21) 25##-####", "11 9####-####"),
        "tr": ("0532 ### ## ##", "0 (212) 29# ## ##"),
        "en": ("(415) N55-2###", "202-N41-####", "020 79## ####", "312.755.####"),
        "hi": ("98765 #####", "098765 #####"),
    }

    def dialled(self, plan: str) -> str:
        number = "".join(self.chance.choice(string.digits) if c == "#" else self.chance.choice("23456789") if c == "N" else c for c in plan)
        return number.replace(" ", self.chance.choice((" ", " ", " ", "\u00a0"))).replace(
            "-", self.chance.choice(("-", "-", "-", "\u2011"))
        )

    def phone(self) -> str:
        return self.dialled(self.chance.choice(self.INTERNATIONAL))

    def with_phone(self) -> str:
        return self.chance.choice(("", "", "", "", " 2024-05-06", ", 12/27", " (mobile)", " 94105", " 9:30", "\n12 rue du Bac"))

    # -- addresses of the internet

    def ip(self) -> str:
        if self.chance.random() < 0.25:
            head = self.chance.choice(("2a02:8108", "2600:1f18", "2001:4860", "2a00:1450", "2407:c080"))
            tail = [f"{self.chance.randrange(1, 0xFFFF):x}" for _ in range(6)]
            return f"{head}:{':'.join(tail)}" if self.chance.random() < 0.5 else f"{head}:{tail[0]}::{tail[1]}"
        parts = (
            self.chance.choice((8, 31, 52, 78, 93, 140, 185, 213)),
            self.chance.randrange(256),
            self.chance.randrange(256),
            self.chance.randrange(1, 255),
        )
        return ".".join(map(str, parts))

    # -- secrets, in the form that their services write

    def secret(self) -> str:
        alphanumeric, upper = string.ascii_letters + string.digits, string.ascii_uppercase + "234567"
        word = alphanumeric + "_-"
        return self.chance.choice(
            (
                lambda: f"AKIA{self.of(upper, 16)}",
                lambda: f"ghp_{self.of(alphanumeric, 36)}",
                lambda: f"github_pat_{self.of(alphanumeric, 22)}_{self.of(alphanumeric, 59)}",
                lambda: f"glpat-{self.of(alphanumeric, 20)}",
                lambda: f"sk-proj-{self.of(alphanumeric, 48)}",
                lambda: f"sk-{self.of(alphanumeric, 48)}",
                lambda: f"sk-ant-api03-{self.of(alphanumeric, 93)}AA",
                lambda: f"hf_{self.of(string.ascii_letters, 34)}",
                lambda: f"xoxb-{self.digits(12)}-{self.digits(12)}-{self.of(alphanumeric, 24)}",
                lambda: f"xapp-1-A{self.of(upper, 10)}-{self.digits(13)}-{self.of('0123456789abcdef', 64)}",
                lambda: f"https://hooks.slack.com/services/T{self.of(upper, 8)}/B{self.of(upper, 8)}/{self.of(alphanumeric, 24)}",
                lambda: f"AIza{self.of(alphanumeric, 35)}",
                lambda: f"sk_live_{self.of(alphanumeric, 24)}",
                lambda: f"npm_{self.of(alphanumeric, 36)}",
                lambda: f"pypi-AgEIcHlwaS5vcmc{self.of(alphanumeric, 150)}",
                lambda: f"SG.{self.of(alphanumeric, 22)}.{self.of(alphanumeric, 43)}",
                lambda: f"eyJhbGciOiJIUzI1NiJ9.eyJ{self.of(alphanumeric, 40)}.{self.of(word, 42)}x",
                lambda: (
                    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{self.of(alphanumeric, 70)}\n{self.of(alphanumeric, 70)}\n-----END OPENSSH PRIVATE KEY-----"
                ),
                lambda: f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{self.of(alphanumeric, 64)}\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----",
                lambda: f"{self.of('0123456789abcdef', 32)}-us{self.digits(2)}",
                lambda: f"ghs_{self.of(alphanumeric, 36)}",
                lambda: f"aws_secret_access_key = {BEHIND}{self.of(alphanumeric + '/+', 40)}",
            )
        )()


KINDS: Mapping[str, tuple[int, Callable[[Inventor], str], Callable[[Inventor], str]]] = {
    "card": (100, Inventor.card, Inventor.with_card),
    "iban": (120, Inventor.iban, Inventor.with_iban),
    "national_id": (100, Inventor.national_id, lambda _: ""),
    "email": (140, Inventor.email, lambda _: ""),
    "phone": (110, Inventor.phone, Inventor.with_phone),
    "ip": (60, Inventor.ip, lambda _: ""),
    "secret": (70, Inventor.secret, lambda _: ""),
}
"""Kind → how many are planted, how one is invented, and what follows it."""


def not_private(inventor: Inventor) -> Iterator[str]:
    """Yield what looks like a value and is nobody's."""
    chance, digits, of = inventor.chance, inventor.digits, inventor.of
    low, hexadecimal = string.ascii_lowercase, "0123456789abcdef"
    host, name = chance.choice(("github.com", "gitlab.com", "bitbucket.org", "git.acme.io")), chance.choice(("tools", "web-app", "infra"))
    yield f"git@{host}:acme/{name}.git"
    yield f"{chance.choice(('name', 'user', 'you', 'alice'))}@{chance.choice(('example.com', 'example.org', 'mail.example.net', 'foo.test'))}"
    yield chance.choice(
        (
            "@types/node@18.2.0",
            "@app.route",
            "root@localhost",
            "react@18.2.0",
            "@OpenAI",
            "pip install x@1.0",
            "a @ b.c",
            "user@host",
            "commit@{1}",
        )
    )
    yield f"{chance.choice('+-')}{chance.uniform(1, 89):.6f}, {chance.choice('+-')}{chance.uniform(1, 179):.6f}"
    yield f"{chance.uniform(1, 89):.4f}° N, {chance.uniform(1, 179):.4f}° E"
    yield f"+{digits(2)} {digits(3)} = {digits(4)}"
    yield f"@@ -{digits(3)},{digits(1)} +{digits(3)},{digits(2)} @@"
    yield f"2024-0{digits(1)}-1{digits(1)} 1{digits(1)}:2{digits(1)}:3{digits(1)}"
    yield chance.choice(("order", "invoice", "ticket", "Nr.")) + f" {digits(4)}-{digits(5)}-{digits(3)}"
    yield f"{digits(3)},{digits(3)},{digits(3)}"
    yield f"+{digits(2)}%, from {digits(5)} to {digits(5)}"
    yield f"ISBN 978-3-{digits(5)}-{digits(3)}-{digits(1)}"
    yield f"17{digits(8)}"
    yield chance.choice(
        (
            f"10.{digits(2)}.0.{digits(2)}",
            f"192.168.{digits(1)}.{digits(2)}",
            f"127.0.0.{digits(1)}",
            f"172.16.0.{digits(2)}",
            f"169.254.1.{digits(1)}",
        )
    )
    yield chance.choice(
        (
            f"224.0.0.{digits(2)}",
            f"192.0.2.{digits(2)}",
            f"198.51.100.{digits(2)}",
            f"203.0.113.{digits(2)}",
            "0.0.0.0",
            "255.255.255.0",
            "240.0.0.1",
        )
    )
    yield chance.choice(("2001:db8::{}", "fe80::{}", "3fff::{}", "::1", "fd00::{}", "ff02::{}", "12:3{}:45")).format(digits(1))
    yield chance.choice(("version {}.{}.{}", "v{}.{}.{}", "numpy=={}.{}.{}", "section {}.{}.{}")).format(digits(1), digits(2), digits(1))
    yield chance.choice(
        (
            f"Chrome/12{digits(1)}.0.{digits(4)}.{digits(3)}",
            f"build 10.0.{digits(5)}.{digits(4)}",
            f"version 3.{digits(2)}.4.1",
            f"v2.{digits(1)}.1.7",
        )
    )
    bad = inventor.card()
    yield bad[:-1] + str((int(bad[-1]) + chance.randrange(1, 10)) % 10)
    yield chance.choice(("16", "17")) + digits(11)
    yield f"{digits(4)} {digits(4)} {digits(4)}"
    yield "0." + digits(16)
    yield f"{digits(4)},{digits(4)},{digits(4)}"
    yield f"{digits(1)},{digits(3)},{digits(3)},{digits(3)},{digits(3)}"
    yield f"| {digits(4)} | {digits(4)} | {digits(4)} | {digits(4)} |"
    yield f"[{digits(4)}, {digits(4)}, {digits(4)}, {digits(4)}, {digits(4)}]"
    yield f"{digits(2)},{digits(2)} € - {digits(3)},{digits(2)} €, {digits(1)}.{digits(3)},{digits(2)} €"
    yield f"{digits(2)}.{digits(6)},{digits(2)}.{digits(6)}|{digits(2)}.{digits(4)},-{digits(2)}.{digits(4)}"
    yield chance.choice(
        (
            "git%40github.com:acme/x.git",
            "a(at)b",
            "user%40example.com",
            "look [at] this [dot]",
            "100%25 of 40%20",
            "visit us at acme dot com",
            "&copy;2024 acme.io",
        )
    )
    yield of(hexadecimal, 32)
    yield f"{of(hexadecimal, 8)}-{of(hexadecimal, 4)}-4{of(hexadecimal, 3)}-a{of(hexadecimal, 3)}-{of(hexadecimal, 12)}"
    yield chance.choice(
        ("0000 0000 0000 0000", "1111-1111-1111-1111", "1234 5678 9012 3456", "9999 9999 9999 9999", "3.14159265358979323846")
    )
    wrong = inventor.iban()
    yield wrong[:2] + f"{(int(wrong[2:4]) + 3) % 97:02}" + wrong[4:]
    yield chance.choice(("AB12", "SKU4", "DE99", "XK07")) + of(string.ascii_uppercase + string.digits, 16)
    yield of(hexadecimal, 40)
    yield chance.choice((f"000-{digits(2)}-{digits(4)}", f"666-{digits(2)}-{digits(4)}", f"{digits(3)}-00-{digits(4)}"))
    number = digits(8)
    yield number + "TRWAGMYFPDXBNJZSQVHLCKE"[(int(number) + chance.randrange(1, 23)) % 23]
    yield inventor.cn()[:-1] + "?"
    yield chance.choice(
        (f"{digits(6)}-{digits(3)}", f"{digits(9)}", f"{digits(11)}", f"{digits(2)}.{digits(3)}.{digits(3)}", f"ID-{digits(6)}")
    )
    yield chance.choice(
        (
            "sk-your-key-here",
            "sk-…",
            "hf_hub_download",
            "npm_config_registry",
            "AKIA",
            "ghp_token",
            "xoxb-your-token",
            "pypi-publish",
            "sk-learn-estimator-html-representation-x",
            "<API_KEY>",
        )
    )
    yield of(string.ascii_letters + string.digits + "+/", 60) + "=="
    yield "sha256:" + of(hexadecimal, 64)
    yield f"{of(low, 8)}-{of(low, 9)}-{of(low, 5)}-{digits(3)}"
    yield chance.choice(
        (
            "-----BEGIN PUBLIC KEY-----",
            "-----BEGIN CERTIFICATE-----",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + of(string.ascii_letters, 40),
        )
    )


class Text(Struct, frozen=True):
    """A text with what is planted in it: kind, start and end of a value, if it is one.

    Attributes:
        where: its language, or kind of markup.
    """

    text: str
    where: str
    planted: tuple[tuple[str, int, int], ...]


def laid(kind: str, value: str, follows: str, where: str, form: str) -> Text:
    """A value in a text."""
    names, _, value = value.rpartition(BEHIND)
    before = form.format("\0").partition("\0")[0] + names
    return Text(form.format(names + value + follows), where, ((kind, len(before), len(before) + len(value)),) if kind else ())


def texts(seed: int = SEED) -> list[Text]:
    """The set: values, cards beside cards, national phone numbers, and look-alikes."""
    inventor = Inventor(seed)
    chance, found, places = inventor.chance, list[Text](), [*FORMS]
    for kind, (number, invent, follows) in KINDS.items():
        for at in range(number):
            where = places[at % len(places)]
            found.append(laid(kind, invent(inventor), follows(inventor), where, chance.choice(FORMS[where])))
    for _ in range(20):  # two of each in a text; counted as two
        one, two = inventor.card(), inventor.card()
        found.append(Text(f"{one} {two}", "tables and logs", (("card", 0, len(one)), ("card", len(one) + 1, len(one) + 1 + len(two)))))
    for at in range(60):
        where = [*Inventor.NATIONAL][at % len(Inventor.NATIONAL)]
        found.append(laid("phone", inventor.dialled(chance.choice(Inventor.NATIONAL[where])), "", where, FORMS[where][0]))
    for _ in range(14):
        for like in not_private(inventor):
            where = chance.choice(places)
            found.append(laid("", like, "", where, chance.choice(FORMS[where])))
    return found


Counts = dict[str, list[int]]
"""Kind or place → how many were planted, how many of them were found, and how many values were found in all."""


def measured(of: Sequence[Text]) -> tuple[Counts, Counts, list[str]]:
    """Figures by kind and by place, and what was missed or found wrongly."""
    by_kind: Counts = {kind: [0, 0, 0] for kind in KINDS}
    by_place: Counts = {place: [0, 0, 0] for place in FORMS}
    wrong = []
    for each in of:
        found = {*dict(redaction.values_of([each.text], redaction.KINDS)).get(0, [])}
        for kind, start, end in {*each.planted} | found:
            is_planted, is_found = (kind, start, end) in each.planted, (kind, start, end) in found
            for figures in (by_kind[kind], by_place[each.where]):
                figures[0] += is_planted
                figures[1] += is_planted and is_found
                figures[2] += is_found
            if is_planted != is_found:
                wrong.append(f"{'missed' if is_planted else 'wrong'} {kind}: {each.text[start:end]!r} in {each.text!r}")
    return by_kind, by_place, sorted(wrong)


def table(of: Sequence[Text] = ()) -> str:
    """The table of the page."""
    of = of or texts()
    lines = ["| kind, or text around it | planted | recall | precision |", "|---|---|---|---|"]
    by_kind, by_place, _ = measured(of)
    total = [sum(column) for column in zip(*by_kind.values(), strict=True)]
    for name, (planted, right, found) in {**{f"`{kind}`": counts for kind, counts in by_kind.items()}, **by_place, "all": total}.items():
        lines.append(f"| {name} | {planted} | {right / planted:.3f} | {right / max(1, found):.3f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--seed", type=int, default=SEED, help="another set by the same rules")
    given = parser.parse_args()
    of = texts(given.seed)
    print(table(of), f"{sum(not each.planted for each in of)} texts without a value", sep="\n")
    if given.misses:
        print(*measured(of)[2], sep="\n")


if __name__ == "__main__":
    main()
