"""Answers that are equal, and answers that are not: fractions, percents, currencies, units, intervals, ranges, LaTeX."""

from __future__ import annotations

import re

import pytest

from prep_assets.extensions.quality.rl_golds import boxed_equal, equal_answers
from prep_assets_tests.conftest import ROOT

EQUAL = r"""
1/2 | 0.5  ;  \frac{1}{2} | 1/2  ;  \dfrac{3}{4} | 0.75  ;  \tfrac{3}{4} | \frac34  ;  2 1/3 | 7/3  ;  2\frac{1}{3} | 7/3  ;  2\frac13 | \frac{7}{3}
-1 1/2 | -3/2  ;  50% | 50 %  ;  50\% | 50%  ;  0.5 | 50%  ;  12.5% | 12.5 percent  ;  25 percent | 25%  ;  25\text{ percent} | 25%  ;  $5 | 5 dollars
\$5 | $5.00  ;  $1,200 | 1200  ;  US$1,200 | 1200  ;  £3.50 | 3.5  ;  €12 | 12 euros  ;  12 EUR | €12  ;  ¥500 | 500 yen  ;  5 USD | $5  ;  ₹100 | 100
100 rupees | ₹100  ;  12 € | 12  ;  12.00 € | 12 €  ;  12 cm | 12cm  ;  12\text{ cm} | 12 cm  ;  12\,\text{cm} | 12 cm  ;  12~cm | 12 cm
12\ \text{cm} | 12  ;  3 m/s | 3\,\text{m/s}  ;  3 m/s | 3  ;  9 cm^2 | 9 cm²  ;  9\text{ cm}^2 | 9  ;  9 square centimeters | 9  ;  90^\circ | 90
90° | 90^\circ  ;  90 degrees | 90°  ;  5 hours | 5  ;  1 hour | 1 hours  ;  12 apples | 12  ;  12 apple | 12 apples  ;  (1,2) | (1, 2)
[0,1) | [0, 1)  ;  (-\infty,3] | (-\infty, 3]  ;  (0,\infty) | (0,+\infty)  ;  \{1,2\} | \{2,1\}  ;  1,2,3 | 1, 2, 3  ;  x=3 | 3  ;  x = 3 | x=3
[1,2]\cup[3,4] | [1, 2] \cup [3, 4]  ;  \sqrt{8} | 2\sqrt{2}  ;  \sqrt2 | \sqrt{2}  ;  2\pi | 2π  ;  \pi/2 | \frac{\pi}{2}  ;  x^2+2x+1 | (x+1)^2
10^3 | 1000  ;  1.0 | 1  ;  3.140 | 3.14  ;  1000000 | 1,000,000  ;  1\,000\,000 | 1000000  ;  1{,}000 | 1000  ;  1 000 000 | 1000000
6.02\times10^{23} | 6.02 \times 10^{23}  ;  1e3 | 1000  ;  \text{A} | A  ;  (A) | A  ;  \text{(B)} | B  ;  Yes | yes  ;  \text{Monday} | Monday
True | true  ;  $12$ | 12  ;  12. | 12  ;  +5 | 5  ;  −5 | -5  ;  1:2 | 1 : 2  ;  3:30 pm | 3:30 PM  ;  \left(1,2\right) | (1,2)
\displaystyle\frac{1}{2} | 1/2  ;  x\in[0,1] | [0,1]  ;  10-20 | 10 - 20  ;  10–20 | 10-20  ;  2024-05-06 | 2024-05-06  ;  101_2 | 101_{2}
\begin{pmatrix}1\\2\end{pmatrix} | \begin{pmatrix} 1 \\ 2 \end{pmatrix}  ;  1/3 | 0.3333333333  ;  \frac{-1}{2} | -\frac{1}{2}  ;  12:30 | 12:30
8 dozen | 8 dozen  ;  5! | 120  ;  \boxed{5} | 5  ;  100 °C | 100°C  ;  5 kg | 5kg  ;  1,234.50 | 1234.5  ;  $1.50 | 1.50  ;  0.1 | 1/10  ;  -0 | 0
٣ | 3  ;  ３ | 3  ;  ½ | 1/2  ;  2½ | 5/2  ;  x>3 | x > 3  ;  x \geq 3 | x\ge 3  ;  \approx 3.14 | 3.14  ;  7 | 7.0  ;  \frac{22}{7} | 22/7
4/6 | 2/3  ;  -\frac{5}{3} | -5/3  ;  1\dfrac{1}{2} | 1.5  ;  3½ | 3.5  ;  ¾ | 75%  ;  10 percent | 0.1  ;  $2.50 | 2.5 dollars  ;  R$ 100 | R$100
CHF 20 | 20 CHF  ;  20 francs | 20 francs  ;  $1,000,000 | 1 million dollars  ;  2.5 million | 2,500,000  ;  3 dozen eggs | 36 eggs
15 minutes | 15 min  ;  2 hrs | 2 hours  ;  40 km/h | 40 kph  ;  5 liters | 5 L  ;  3 kg | 3 kilograms  ;  6 feet | 6 ft  ;  36 in | 36 inches
10 meters | 10 m  ;  16 cm^3 | 16 cubic centimeters  ;  25 sq ft | 25 square feet  ;  7:15 | 7:15  ;  7:15 a.m. | 7:15 AM  ;  July 4 | july 4
(0, 1) | (0,1)  ;  (\frac12,1) | (0.5,1)  ;  (-\infty, \infty) | \mathbb{R}  ;  \emptyset | \varnothing  ;  x = 1, 2 | 1, 2
x=1 \text{ or } x=2 | 1, 2  ;  1 \text{ and } 2 | 1,2  ;  \pm 3 | 3, -3  ;  \ln(e) | 1  ;  e^{2} | e^2  ;  2\sqrt3 | \sqrt{12}  ;  \sqrt[3]{8} | 2
\binom{5}{2} | 10  ;  \lfloor 2.5\rfloor | 2  ;  3i+2 | 2+3i  ;  \text{C} | (C)  ;  C | C.  ;  $x^2$ | x^2  ;  \(5\) | 5  ;  \[5\] | 5  ;  5\% | 5%
\frac{\sqrt{3}}{2} | \sqrt{3}/2  ;  20\,\mathrm{m/s} | 20 m/s  ;  120^{\circ} | 120  ;  37 °C | 37°C  ;  -3 | \text{-}3  ;  1 234 567 | 1,234,567
1.2e-3 | 0.0012  ;  No. 5 | No. 5  ;  24 students | 24  ;  24 students | 24 student  ;  $45. | 45  ;  A = 45 | 45  ;  three | three  ;  x^3 | x³
5 ≤ x | 5\le x  ;  2·3 | 6  ;  １２３ | 123  ;  8 : 3 | 8:3  ;  Option B | B  ;  (C) | option C  ;  0.\overline{3} | 1/3  ;  0.1\overline{6} | 1/6
-2.\bar{45} | -27/11  ;  \frac{1}{3} | 0.\overline{3}
5 s | 5 seconds  ;  5 ms | 5 milliseconds  ;  60 km/h | 60 kilometers per hour  ;  60 mph | 60 miles per hour  ;  12 m^2 | 12\text{ m}^2
37°C | 37^\circ\text{C}  ;  37℃ | 37 °C  ;  75 cents | 75¢  ;  10-20 | 10 to 20  ;  3:30 PM | 3:30pm  ;  A | A)  ;  The answer is (B). | B
42 | \boldsymbol{42}  ;  42 | **42**  ;  = 42 | 42  ;  1,234,567 | 1’234’567  ;  1.234.567 | 1,234,567  ;  1.234,56 | 1,234.56  ;  √16 | 4
1 234 567.5 | 1,234,567.5  ;  \frac{3}{4} \text{ cup} | 3/4 cup  ;  2\frac{1}{4} \text{ miles} | 9/4 miles  ;  5小时 | 5 小时  ;  3个 | 3
12元 | 12 元  ;  1.5万 | 15000  ;  3百万元 | 300万元  ;  3千米 | 3  ;  是 | 是。  ;  5 miles | 5 mi
¥12 | 12元  ;  3 and 1/2 | 7/2  ;  ₹12,34,567 | 1234567 rupees  ;  20 degrees Celsius | 20°C  ;  10^-2 | 0.01  ;  33\frac{1}{3}\% | 33 1/3 %
2\times10^-3 | 0.002
1.5\times10^{3} | 1500  ;  1.5\times10^{3} J | 1500 J  ;  3\cdot 10^{8}\text{ m/s} | 300000000 m/s  ;  2.5\times10^{-3} | 0.0025
"""
"""Pairs, by the meaning that a teacher would give them; a unit that one answer leaves out does not count."""
DIFFERENT = r"""
1/2 | 2  ;  1/2 | 1  ;  2 1/3 | 21/3  ;  2\frac{1}{3} | \frac{2}{3}  ;  2 1/3 | 2  ;  -1 1/2 | -1/2  ;  50% | 50.5%  ;  50% | 5%  ;  12% | 0.12%
$5 | €5  ;  5 dollars | 5 euros  ;  £3 | $3  ;  5 USD | 5 EUR  ;  ¥500 | $500  ;  $5 | 5 cents  ;  $5 million | $5  ;  5 million | 5 billion
5 thousand | 5  ;  12 cm | 12 mm  ;  12 cm | 12 cm^2  ;  12 cm | 12 inches  ;  5 km | 5 miles  ;  3 m/s | 3 km/h  ;  5 hours | 5 days
90^\circ | 90 rad  ;  12 apples | 12 pears  ;  100°C | 100°F  ;  5 kg | 5 g  ;  9 cm^2 | 9 cm^3  ;  (1,2) | (2,1)  ;  (1,2) | [1,2]  ;  [0,1) | (0,1]
[0,1) | [0,1]  ;  (0,1) | (0,1]  ;  (1,2) | 1.2  ;  (1,2) | 12  ;  1,2 | 12  ;  1,2,3 | 1,2  ;  \{1,2\} | \{1,2,3\}  ;  1,23 | 123
(-\infty,3] | (-\infty,3)  ;  [1,2]\cup[3,4] | [1,4]  ;  (-1,1) | (1,1)  ;  \sqrt{2} | 2  ;  \sqrt{2} | 1.4  ;  2\pi | 2  ;  \pi | 3.14  ;  x^2 | 2x
10^3 | 103  ;  1.5 | 15  ;  1.5 | 1,5  ;  3.14 | 314  ;  1e3 | 13  ;  A | B  ;  (A) | (B)  ;  Yes | No  ;  Monday | Tuesday  ;  True | False
-5 | 5  ;  1:2 | 2:1  ;  1:2 | 1:3  ;  3:30 pm | 3:30 am  ;  10-20 | 10  ;  10-20 | -10  ;  10-20 | 20-10  ;  10–20 | 10  ;  2024-05-06 | 2024-06-05
2024-05-06 | 2013  ;  101_2 | 101_3  ;  101_2 | 101  ;  101_2 | 110_2  ;  x>3 | x<3  ;  x \geq 3 | x > 3  ;  x=3 | x=-3  ;  x=3 | y=3  ;  12 | -12
0 | 1  ;  12 | 12.1  ;  1/3 | 0.33  ;  3 3/4 | 33/4  ;  x+1 | x-1  ;  \frac{a}{b} | \frac{b}{a}  ;  2^3 | 3^2  ;  \log 2 | 2  ;  n! | n  ;  1 2 | 12
1 2 3 | 123  ;  5,000 | 5  ;  5,000 | 5.000  ;  07 | 70  ;  1/2/3 | 1/6  ;  May 5 | June 5  ;  12:30 | 12.30  ;  12:30 | 1230  ;  8 dozen | 8
7 | 7.1  ;  22/7 | \pi  ;  2/3 | 3/2  ;  1\frac12 | \frac{1}{2}  ;  3½ | 3  ;  75% | 7.5%  ;  10% | 10.1%  ;  2.50 | 25  ;  R$ 100 | €100
20 CHF | 20 EUR  ;  1 million | 1,000  ;  2.5 million | 2.5  ;  36 eggs | 36 hens  ;  15 minutes | 15 hours  ;  15 min | 15 mm  ;  5 L | 5 mL
3 kg | 3 lb  ;  6 ft | 6 in  ;  6 m | 6 m^2  ;  16 cm^3 | 16 cm^2  ;  7:15 | 7:51  ;  7:15 am | 7:15 pm  ;  July 4 | July 5  ;  (0,1) | (0,1,2)
[2,\infty) | (2,\infty)  ;  \emptyset | 0  ;  1 and 2 | 12  ;  \pm 3 | 3  ;  e^2 | e^3  ;  \sqrt3 | 3  ;  3i | 3  ;  3x | 3  ;  3n | 3  ;  2x+1 | 2x
2a | 2b  ;  5! | 5  ;  C | D  ;  Option B | Option C  ;  5 ≤ x | 5 < x  ;  8:3 | 83  ;  8:3 | 8.3  ;  8:3 | 3:8  ;  1-2 | -1  ;  1990-2000 | -10
12/25/2020 | 12/20/2025  ;  1.2e-3 | 1.2  ;  1.2e3 | 1.2e2  ;  111_2 | 111_8  ;  45^\circ | 45\%  ;  x>2 | x\ge2  ;  True | 1  ;  no | not
12,5 | 125  ;  0.3 | 0.33  ;  -\frac{5}{3} | \frac{5}{3}  ;  100 | 1000  ;  3 1/2 | 3 1/3  ;  (2,3) | 2/3
1.5 x 10^3 | 1500  ;  1.5\times10^{3} | 1.5  ;  1.5\times10^{3} J | 1500 kg  ;  1,5 | 1.5  ;  12{,}5 | 12.5  ;  3\times10^2+1 | 300
5 hours | 5 seconds  ;  5 m | 5 s  ;  5 ms | 5 m  ;  0x1F | 0x1E  ;  0x1F | 0  ;  0b101 | 0b111  ;  12 12 | 24  ;  192.168.0.1 | 192.168.0.2
1.234 | 1234  ;  1.234 | 1,234  ;  5'10 | 510  ;  √16 | 6  ;  3万 | 3千  ;  3千米 | 3米  ;  3千米 | 3千克  ;  5小时 | 5分钟  ;  3个 | 3只
2024年5月6日 | 2024年6月5日  ;  3点半 | 3点  ;  75¢ | $75  ;  3:30pm | 3:30am  ;  5,10,100 | 510100  ;  20°C | 20 degrees Fahrenheit  ;  3 and 4 | 7
A) | B)  ;  60 mph | 60 m/s
0.\overline{3} | 0.3  ;  0.\overline{36} | 0.3\overline{6}  ;  Option B | option  ;  Option B | A
"""


def pairs(written: str) -> list[tuple[str, str]]:
    """The pairs of a table."""
    return [(first, second) for first, second in (pair.split(" | ") for pair in re.split(r"  ;  |\n", written.strip()))]


@pytest.mark.parametrize("one_in", [5, pytest.param(1, marks=pytest.mark.soak)])
def test_answers_are_equal_or_not_whichever_is_the_gold(one_in: int) -> None:
    judged = [(equal, *pair) for equal, written in ((True, EQUAL), (False, DIFFERENT)) for pair in pairs(written)][::one_in]
    assert [each for each in judged if each[0] != equal_answers(each[1], each[2]) or each[0] != equal_answers(each[2], each[1])] == []
    if one_in > 1:
        return
    alone = sum(boxed_equal(gold, answer) is equal for equal, gold, answer in judged)
    assert f"Of {len(judged)} pairs of ours, math-verify alone judges {alone} right" in (ROOT / "docs/quality.md").read_text("utf-8")
