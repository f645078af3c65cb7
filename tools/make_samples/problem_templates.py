"""The templates of the word problems: a question, the ranges of its numbers, and the steps of its answer.

``{A}`` and ``{B}`` are two names, ``{things}`` and ``{place}`` come from the lists below, other fields are numbers; a step names the
result of step 1 as ``{r1}``. ``<<expression>>`` in a step is worked out when a row is written.
"""

from __future__ import annotations

from dataclasses import dataclass

NAMES = (
    "Amina", "Bruno", "Chloé", "Dmitri", "Elif", "Farid", "Grace", "Hana", "Ivo", "Jiro", "Kwame", "Lena", "Mateo", "Nadia", "Oskar",
    "Priya", "Quentin", "Rosa", "Samir", "Tomás", "Uma", "Viktor", "Wanda", "Ximena", "Yusuf", "Zoe",
)  # fmt: skip
THINGS = (
    "marbles", "postcards", "apples", "stickers", "shells", "buttons", "walnuts", "stamps", "pencils", "beads", "lemons", "tulip bulbs",
    "paper cranes", "candles", "chestnuts", "badges",
)  # fmt: skip
PLACES = ("the harbour", "the library", "the school fair", "the night market", "the mountain hut", "the city museum", "the old mill")

_TEMPLATES = """
{A} packs {a} boxes with {b} {things} each and gives {c} of the {things} to {B}. How many {things} does {A} keep?
with a=3..9 b=6..15 c=4..17
{A} packs {a} x {b} = <<{a}*{b}>> {things}.
After the gift, <<{r1}-{c}>> {things} are left.

A visit to {place} costs ${a} for adults and ${b} for children. {A} pays for {c} adults and {d} children. How much is that?
with a=8..19 b=3..7 c=2..5 d=2..9
Adults pay {a} x {c} = $<<{a}*{c}>>.
Children pay {b} x {d} = $<<{b}*{d}>>.
Together that is {r1} + {r2} = $<<{r1}+{r2}>>.

{A} reads {a} pages on Monday, twice as many on Tuesday, and {b} on Wednesday. {A}'s book has {c} pages. How many remain?
with a=12..40 b=15..60 c=240..420/10
On Tuesday {A} reads {a} x 2 = <<{a}*2>> pages.
In three days that makes <<{a}+{r1}+{b}>> pages.
So {c} - {r2} = <<{c}-{r2}>> pages remain.

A bus sets off with {a} passengers. On the way {b} get off and {c} get on; at {place} half of them leave.
How many stay on the bus with {A}?
with a=30..60/2 b=4..20/2 c=6..18/2
After the stops there are {a} - {b} + {c} = <<{a}-{b}+{c}>> passengers.
Half of them stay: {r1} / 2 = <<{r1}/2>>.

At noon it is {a} degrees Celsius at {place}. By midnight it gets {b} degrees colder, and by dawn {c} degrees colder still.
What does {A}'s thermometer show then?
with a=1..9 b=4..11 c=3..8 least=-30
At midnight it shows {a} - {b} = <<{a}-{b}>> degrees.
At dawn it shows {r1} - {c} = <<{r1}-{c}>> degrees.

{A} owes {B} ${a} and has ${b}. {A} pays {B} back and buys lunch on credit for ${c}. What is {A}'s balance, in dollars?
with a=20..60 b=12..50 c=8..19 least=-90
After paying {B}, {A} has {b} - {a} = $<<{b}-{a}>>.
Lunch changes that to {r1} - {c} = $<<{r1}-{c}>>.

A factory fills {a} crates a day, each with {b} {things}. How many {things} are that in {c} days?
with a=12..60 b=24..96/12 c=4..20
A day's work is {a} x {b} = <<{a}*{b}>> {things}.
In {c} days it is {r1} x {c} = <<{r1}*{c}>> {things}.

{A} cycles {a} km every day to {place} and back. How far is that in {b} weeks of {c} days?
with a=3..18 b=3..12 c=4..6
There and back is {a} x 2 = <<{a}*2>> km.
A week makes {r1} x {c} = <<{r1}*{c}>> km.
So {b} weeks make {r2} x {b} = <<{r2}*{b}>> km.

Tea costs ${a}.50 a cup and cake ${b}.25 a slice. {A} orders {c} cups and {d} slices at {place}. How much does {A} pay, in dollars?
with a=1..4 b=2..5 c=2..7 d=1..6 decimals=2
The tea is {a}.50 x {c} = $<<{a}.5*{c}>>.
The cake is {b}.25 x {d} = $<<{b}.25*{d}>>.
The sum is {r1} + {r2} = $<<{r1}+{r2}>>.

{A} walks {a} km in {b} hours. At that pace, how many kilometres does {A} walk in {c} hours?
with a=6..24 b=2..5 c=3..9 decimals=1
In one hour {A} walks {a} / {b} = <<{a}/{b}>> km.
In {c} hours it is {r1} x {c} = <<{r1}*{c}>> km.

A coat of ${a} is reduced by {b}%. {A} also has a voucher for ${c}. What does {A} pay, in dollars?
with a=60..180/10 b=10..40/5 c=5..15 decimals=2
The reduction is {a} x {b} / 100 = $<<{a}*{b}/100>>.
The new price is {a} - {r1} = $<<{a}-{r1}>>.
With the voucher it is {r2} - {c} = $<<{r2}-{c}>>.

A rectangular garden at {place} is {a} m long and {b} m wide. {A} fences it but for a gate of {c} m. How long is {A}'s fence, in metres?
with a=12..45 b=6..30 c=1..4
Length and width are {a} + {b} = <<{a}+{b}>> m.
All round it is 2 x {r1} = <<2*{r1}>> m.
Without the gate it is {r2} - {c} = <<{r2}-{c}>> m.

{A} has {a} {things}, {B} has {b} times as many, and a friend has {c} fewer than {B}. How many {things} do all three have?
with a=8..25 b=2..6 c=3..15
{B} has {a} x {b} = <<{a}*{b}>> {things}.
The friend has {r1} - {c} = <<{r1}-{c}>>.
All three have {a} + {r1} + {r2} = <<{a}+{r1}+{r2}>>.

A baker makes {a} rolls an hour and works {b} hours. {c} bags of {d} rolls are sold. How many rolls are left for {A}?
with a=40..90/5 b=3..8 c=5..20 d=4..10/2
The baker makes {a} x {b} = <<{a}*{b}>> rolls.
Sold are {c} x {d} = <<{c}*{d}>> rolls.
Left are {r1} - {r2} = <<{r1}-{r2}>> rolls.

{A} shares {a} {things} equally among {b} friends and each friend passes {c} on to {B}. How many does each friend have in the end?
with a=48..240/6 b=3..8 c=1..5
Each friend gets {a} / {b} = <<{a}/{b}>>.
After passing some on, each has {r1} - {c} = <<{r1}-{c}>> {things}.

A hall has {a} rows of {b} seats. For {A}'s concert, {c}% of the seats are sold. How many stay empty?
with a=15..60/5 b=16..40/4 c=60..95/5
There are {a} x {b} = <<{a}*{b}>> seats.
Sold are {r1} x {c} / 100 = <<{r1}*{c}/100>> seats.
Empty are {r1} - {r2} = <<{r1}-{r2}>> seats.

{A} earns ${a} an hour. Above {b} hours {B} adds half as much again. What do {c} hours bring {A}, in dollars?
with a=12..30/2 b=30..40/5 c=42..50
The first {b} hours bring {a} x {b} = $<<{a}*{b}>>.
Overtime is {c} - {b} = <<{c}-{b}>> hours.
An hour of overtime brings {a} x 1.5 = $<<{a}*1.5>>.
Overtime brings {r2} x {r3} = $<<{r2}*{r3}>>.
Together: {r1} + {r4} = $<<{r1}+{r4}>>.

A tank holds {a} litres. A pump takes out {b} litres a minute for {c} minutes, then {A} pours in {d} litres. How full is it now, in litres?
with a=800..2400/50 b=8..20 c=10..35 d=15..90/5
The pump takes out {b} x {c} = <<{b}*{c}>> litres.
That leaves {a} - {r1} = <<{a}-{r1}>> litres.
Now there are {r2} + {d} = <<{r2}+{d}>> litres.

{B} is {a} years old. {A} is {b} years older than {B}. In {c} years, what is the sum of their ages?
with a=6..30 b=2..15 c=3..12
{A} is {a} + {b} = <<{a}+{b}>> years old.
Today the sum is {a} + {r1} = <<{a}+{r1}>>.
Both grow older, so add {c} x 2 = <<{c}*2>>.
The sum will be {r2} + {r3} = <<{r2}+{r3}>>.

A recipe for {a} people takes {b} g of flour. {A} cooks for {c} people at {place}. How many grams of flour are needed?
with a=2..6 b=150..600/30 c=7..20
One portion takes {b} / {a} = <<{b}/{a}>> g.
So {c} portions take {r1} x {c} = <<{r1}*{c}>> g.

{A} saves ${a} in January and {A}'s sum grows by ${b} each month. How much has {A} saved by the end of March?
with a=15..60/5 b=5..20/5
In February it is {a} + {b} = $<<{a}+{b}>>.
In March it is {r1} + {b} = $<<{r1}+{b}>>.
In all that is {a} + {r1} + {r2} = $<<{a}+{r1}+{r2}>>.

An orchard has {a} trees. Each gives {b} kg of fruit, sold at ${c} a kilogram; picking costs ${d} in all. What is {A}'s profit, in dollars?
with a=20..80/4 b=25..60/5 c=2..4 d=300..900/100
The trees give {a} x {b} = <<{a}*{b}>> kg.
The sale brings {r1} x {c} = $<<{r1}*{c}>>.
The profit is {r2} - {d} = $<<{r2}-{d}>>.

{A}'s stall at {place} buys {things} for ${a} and sells all of them for ${b}. A permit is ${c}. What does {A} earn, in dollars?
with a=40..90 b=30..85 c=10..40/5 least=-200
Buying and selling makes {b} - {a} = $<<{b}-{a}>>.
After the permit, it is {r1} - {c} = $<<{r1}-{c}>>.

{A} types {a} words in {b} minutes and {B} types {c} in {d}. How many words do {A} and {B} type in an hour?
with a=90..360/30 b=2..6 c=80..300/20 d=2..5
{A} types {a} / {b} = <<{a}/{b}>> words a minute.
{B} types {c} / {d} = <<{c}/{d}>> words a minute.
Both type {r1} + {r2} = <<{r1}+{r2}>> words a minute.
In an hour that makes {r3} x 60 = <<{r3}*60>> words.

A parcel weighs {a}.{b} kg. {A} takes out {c} {things} of 0.2 kg each. What does {A}'s parcel weigh then, in kg?
with a=4..9 b=1..9 c=3..16 decimals=1
Taken out are {c} x 0.2 = <<{c}*0.2>> kg.
Left are {a}.{b} - {r1} = <<{a}.{b}-{r1}>> kg.

{A} plants {a} rows of {b} carrots. Rabbits eat a quarter. {A} gives {c} to {B}. How many carrots remain?
with a=6..16/2 b=8..20/2 c=5..12
There are {a} x {b} = <<{a}*{b}>> carrots.
The rabbits eat {r1} / 4 = <<{r1}/4>>.
They leave {r1} - {r2} = <<{r1}-{r2}>>.
After the gift there remain {r3} - {c} = <<{r3}-{c}>>.

A film lasts {a} minutes, with {b} breaks of {c} minutes. {A} needs {d} minutes each way. How many minutes is {A} away from home?
with a=85..170 b=1..3 c=5..15 d=10..35/5
The breaks take {b} x {c} = <<{b}*{c}>> minutes.
The way takes 2 x {d} = <<2*{d}>> minutes.
In all it is {a} + {r1} + {r2} = <<{a}+{r1}+{r2}>> minutes.

The population of {A}'s town was {a}. It grew by {b} people a year for {c} years, and {d} moved away. How many live there now?
with a=2200..9800/100 b=110..480/10 c=3..9 d=45..240/5
The growth is {b} x {c} = <<{b}*{c}>> people.
So there were {a} + {r1} = <<{a}+{r1}>> people.
Now there are {r2} - {d} = <<{r2}-{d}>>.

{A} cuts a rope of {a} m into pieces of {b} cm and uses {c} of them at {place}. How many pieces are not used?
with a=6..30 b=20..60/5 c=4..9
The rope is {a} x 100 = <<{a}*100>> cm long.
It gives {r1} / {b} = <<{r1}/{b}>> pieces.
Not used are {r2} - {c} = <<{r2}-{c}>>.

Each of {a} shelves holds {b} books. {A} adds {c} and lends {d} to {B}. How many books are left at {place}?
with a=14..45 b=28..60 c=25..110/5 d=30..140/10
The shelves hold {a} x {b} = <<{a}*{b}>> books.
With the new ones there are {r1} + {c} = <<{r1}+{c}>>.
Without those lent out there are {r2} - {d} = <<{r2}-{d}>>.

{A} scores {a}, {b} and {c} points in three games. How many points must {A} score in the fourth for a mean of {d}?
with a=10..25 b=10..25 c=10..25 d=18..24
Four games with that mean are {d} x 4 = <<{d}*4>> points.
So far there are {a} + {b} + {c} = <<{a}+{b}+{c}>>.
The fourth must bring {r1} - {r2} = <<{r1}-{r2}>>.

A phone plan costs ${a} a month and ${b} for each extra gigabyte. {A} uses {c} extra every month. What does {A} pay a year, in dollars?
with a=12..40 b=2..6 c=1..8
The extra costs {b} x {c} = $<<{b}*{c}>> a month.
A month costs {a} + {r1} = $<<{a}+{r1}>>.
A year costs {r2} x 12 = $<<{r2}*12>>.

{A} swims {a} lengths of {b} m. {B} swims {c} more lengths than {A}. How many metres do both swim?
with a=12..40 b=25..50/25 c=2..15
{B} swims {a} + {c} = <<{a}+{c}>> lengths.
Both swim {a} + {r1} = <<{a}+{r1}>> lengths.
That is {r2} x {b} = <<{r2}*{b}>> m.

A bag of {a} {things} costs ${b}. {A} needs {c} {things} for {place}. How much do just enough bags cost?
with a=6..15 b=2..9 c=60..360/10
{A} needs {c} / {a} = <<{c}/{a}>> bags.
They cost {r1} x {b} = $<<{r1}*{b}>>.

{A} and {B} paint a wall of {a} square metres. {A} paints {b} an hour and {B} {c}. How many are left after {d} hours?
with a=90..200/5 b=6..14 c=5..12 d=2..4
Together they paint {b} + {c} = <<{b}+{c}>> an hour.
In {d} hours they paint {r1} x {d} = <<{r1}*{d}>>.
Left are {a} - {r2} = <<{a}-{r2}>> square metres.

{A}'s submarine is {a} m below the surface. It rises {b} m, then dives {c} m. At what height is {A} now, in metres?
with a=60..180/5 b=15..55/5 c=20..90/5 least=-400
It starts at 0 - {a} = <<0-{a}>> m.
After rising it is at {r1} + {b} = <<{r1}+{b}>> m.
After diving it is at {r2} - {c} = <<{r2}-{c}>> m.

{A} buys {a} m of cloth at ${b}.75 a metre and pays with ${c}. How much change does {A} get, in dollars?
with a=2..8 b=3..9 c=50..100/50 decimals=2
The cloth costs {a} x {b}.75 = $<<{a}*{b}.75>>.
The change is {c} - {r1} = $<<{c}-{r1}>>.

One third of the {a} children at {place} wear red, {b} wear blue, and the others green. {A} counts them. How many wear green?
with a=45..150/3 b=8..25
Red is worn by {a} / 3 = <<{a}/3>> children.
Red or blue is worn by {r1} + {b} = <<{r1}+{b}>>.
Green is worn by {a} - {r2} = <<{a}-{r2}>>.

{A}'s machine folds {a} paper cranes a minute but rests {b} minutes in every hour. How many does {B} get in {c} hours?
with a=7..40 b=5..24 c=3..12
It works 60 - {b} = <<60-{b}>> minutes an hour.
That gives {a} x {r1} = <<{a}*{r1}>> cranes an hour.
In {c} hours it gives {r2} x {c} = <<{r2}*{c}>>.

{A} collects {a} {things} a day from Monday to Friday and {b} a day at the weekend, but loses {c}. How many after {d} weeks?
with a=3..14 b=6..25 c=4..18 d=2..6
Five days bring {a} x 5 = <<{a}*5>>.
The weekend brings {b} x 2 = <<{b}*2>>.
In {d} weeks that is ({r1} + {r2}) x {d} = <<({r1}+{r2})*{d}>>.
Without those lost there are {r3} - {c} = <<{r3}-{c}>>.
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """A template. `ranges` gives each number's first value, last value and step.

    No result of a step is below `least` or has more than `decimals` decimals.
    """

    question: str
    ranges: dict[str, range]
    steps: tuple[str, ...]
    least: int
    decimals: int


def _parsed(block: str) -> Problem:
    """A template from its lines: the question, ``with`` the numbers (``a=from..to/step``) and limits (``least=-30``), the steps."""
    lines = block.strip().splitlines()
    middle = next(number for number, line in enumerate(lines) if line.startswith("with "))
    ranges, limits = {}, {"least": 1, "decimals": 0}
    for word in lines[middle].split()[1:]:
        name, _, span = word.partition("=")
        bounds, _, step = span.partition("/")
        low, _, high = bounds.partition("..")
        if high:
            ranges[name] = range(int(low), int(high) + 1, int(step or 1))
        else:
            limits[name] = int(low)
    return Problem(" ".join(lines[:middle]), ranges, tuple(lines[middle + 1 :]), **limits)


PROBLEMS = tuple(_parsed(block) for block in _TEMPLATES.strip().split("\n\n"))
