"""The tables of facts from which documents, instructions and chats are written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A country: `river` is one of its large rivers, `known` completes "… is known for"."""

    country: str
    capital: str
    continent: str
    language: str
    currency: str
    river: str
    known: str


@dataclass(frozen=True, slots=True)
class Element:
    """A chemical element: `state` holds at room temperature, `uses` completes "It is used in"."""

    name: str
    symbol: str
    number: int
    state: str
    uses: str
    note: str


@dataclass(frozen=True, slots=True)
class Animal:
    """An animal: `home` completes "It lives in", `food` completes "It eats"."""

    name: str
    group: str
    home: str
    food: str
    note: str


@dataclass(frozen=True, slots=True)
class Planet:
    """A planet: `order` counts from the Sun, `year` is the length of its orbit in words."""

    name: str
    order: int
    kind: str
    year: str
    moons: str
    note: str


@dataclass(frozen=True, slots=True)
class Instrument:
    """A musical instrument: `sound` says what vibrates and why."""

    name: str
    family: str
    sound: str
    note: str


def _split(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


PLACES = tuple(
    Place(*row)
    for row in _split("""
Portugal|Lisbon|Europe|Portuguese|the euro|Tagus|cork oak forests, painted tiles and a long Atlantic coast
Spain|Madrid|Europe|Spanish|the euro|Ebro|olive groves, late dinners and the mosque-cathedral of Córdoba
France|Paris|Europe|French|the euro|Loire|hundreds of cheeses, long bicycle races and riverside castles
Germany|Berlin|Europe|German|the euro|Elbe|dark forests, many kinds of bread and the Brothers Grimm's collection of fairy tales
Italy|Rome|Europe|Italian|the euro|Po|Renaissance painting, volcanoes and regional kinds of pasta
Austria|Vienna|Europe|German|the euro|Danube|alpine meadows, coffee houses and the music of Haydn and Schubert
Hungary|Budapest|Europe|Hungarian|the forint|Danube|thermal baths, paprika and a language with eighteen or so noun cases
Poland|Warsaw|Europe|Polish|the złoty|Vistula|salt mines, amber beaches and the astronomer Copernicus
Czechia|Prague|Europe|Czech|the koruna|Vltava|glass blowing, puppet theatre and an astronomical clock from 1410
Norway|Oslo|Europe|Norwegian|the krone|Glomma|deep fjords, wooden stave churches and midnight sun in the north
Sweden|Stockholm|Europe|Swedish|the krona|Dalälven|red timber cottages, cinnamon buns and wide archipelagos
Finland|Helsinki|Europe|Finnish and Swedish|the euro|Kemijoki|saunas, birch forests and more than a hundred thousand lakes
Iceland|Reykjavík|Europe|Icelandic|the króna|Þjórsá|geysers, glaciers and sagas written in the Middle Ages
Ireland|Dublin|Europe|English and Irish|the euro|Shannon|green pastures, fiddle tunes and the long room of an old library
Greece|Athens|Europe|Greek|the euro|Aliakmon|island harbours, ancient theatres and oregano-scented hills
Egypt|Cairo|Africa|Arabic|the Egyptian pound|Nile|pyramids, papyrus and fields kept green by one great river
Morocco|Rabat|Africa|Arabic and Tamazight|the dirham|Draa|mint tea, mosaic courtyards and the Atlas Mountains
Kenya|Nairobi|Africa|Swahili and English|the Kenyan shilling|Tana|savannas, tea gardens and marathon runners
Ghana|Accra|Africa|English|the cedi|Volta|kente cloth, cocoa farms and one of the largest artificial lakes on Earth
Nigeria|Abuja|Africa|English|the naira|Niger|a busy film industry, talking drums and many hundreds of languages
Ethiopia|Addis Ababa|Africa|Amharic|the birr|Blue Nile|wild coffee, rock-hewn churches and a script of its own
Tanzania|Dodoma|Africa|Swahili and English|the Tanzanian shilling|Rufiji|Kilimanjaro, the Serengeti plains and the spice gardens of Zanzibar
Namibia|Windhoek|Africa|English|the Namibian dollar|Orange|tall red dunes, dark night skies and desert elephants
India|New Delhi|Asia|Hindi and English|the rupee|Ganges|monsoon rains, railway journeys and classical dance
Nepal|Kathmandu|Asia|Nepali|the Nepalese rupee|Koshi|the highest mountains on Earth and a flag that is not a rectangle
Japan|Tokyo|Asia|Japanese|the yen|Shinano|punctual trains, hot springs and poems of seventeen sounds
South Korea|Seoul|Asia|Korean|the won|Han|kimchi, palace gates and an alphabet designed in the fifteenth century
China|Beijing|Asia|Mandarin Chinese|the renminbi|Yangtze|tea, terraced rice fields and brush calligraphy
Vietnam|Hanoi|Asia|Vietnamese|the đồng|Red River|noodle soups, limestone bays and water puppets
Thailand|Bangkok|Asia|Thai|the baht|Chao Phraya|floating markets, orchids and a spring water festival
Malaysia|Kuala Lumpur|Asia|Malay|the ringgit|Rajang|rainforests, shadow theatre and twin towers
Mongolia|Ulaanbaatar|Asia|Mongolian|the tögrög|Orkhon|round felt tents, horse races and open steppe
Australia|Canberra|Oceania|English|the Australian dollar|Murray|coral reefs, eucalyptus woods and marsupials
New Zealand|Wellington|Oceania|English and Māori|the New Zealand dollar|Waikato|flightless birds, sheep farms and walking tracks
Canada|Ottawa|North America|English and French|the Canadian dollar|Mackenzie|maple syrup, canoe routes and the longest coast of any country
Mexico|Mexico City|North America|Spanish|the Mexican peso|Lerma|maize, murals and monarch butterflies that arrive every autumn
Peru|Lima|South America|Spanish and Quechua|the sol|Ucayali|thousands of potato varieties, alpaca wool and Machu Picchu
Chile|Santiago|South America|Spanish|the Chilean peso|Loa|the dry Atacama, large telescopes and a coastline of over four thousand kilometres
Argentina|Buenos Aires|South America|Spanish|the Argentine peso|Paraná|tango, wide grasslands and the glaciers of Patagonia
Brazil|Brasília|South America|Portuguese|the real|São Francisco|rainforest, samba and a capital planned on a drawing board
Colombia|Bogotá|South America|Spanish|the Colombian peso|Magdalena|coffee hills, cumbia and more than a thousand species of birds
Uruguay|Montevideo|South America|Spanish|the Uruguayan peso|Río Negro|cattle ranches, mate tea and the first football World Cup in 1930
""")
)

ELEMENTS = tuple(
    Element(name, symbol, int(number), state, uses, note)
    for name, symbol, number, state, uses, note in _split("""
Hydrogen|H|1|gas|fuel cells and the making of ammonia|It is the most common element in the universe.
Helium|He|2|gas|balloons and the cooling of strong magnets|It was found in the light of the Sun before anyone found it on Earth.
Lithium|Li|3|solid|rechargeable batteries|It is light enough to float on oil.
Carbon|C|6|solid|pencils, filters and steel|Diamond and graphite are both made of nothing else.
Nitrogen|N|7|gas|fertiliser and food packaging|It makes up about 78 percent of the air.
Oxygen|O|8|gas|breathing apparatus and welding|It makes up about 21 percent of the air.
Neon|Ne|10|gas|glowing signs|It almost never joins with other elements.
Sodium|Na|11|solid|street lamps and table salt|Its symbol comes from the Latin word natrium.
Magnesium|Mg|12|solid|light alloys and fireworks|One atom of it sits in the middle of every chlorophyll molecule.
Aluminium|Al|13|solid|aircraft, cans and foil|In the nineteenth century it was once a luxury for royal tables.
Silicon|Si|14|solid|computer chips and glass|Together with oxygen it makes up most of the sand on many beaches.
Phosphorus|P|15|solid|fertiliser and the striking surface of matchboxes|It was the first element whose discoverer we know by name.
Sulfur|S|16|solid|rubber, medicine and acids|It burns with a blue flame.
Chlorine|Cl|17|gas|the disinfection of drinking water|Its name comes from a Greek word for pale green.
Calcium|Ca|20|solid|cement and plaster|An adult human body holds about one kilogram of it, most of it in the bones.
Titanium|Ti|22|solid|artificial joints and white paint|It is as strong as many steels and far lighter.
Iron|Fe|26|solid|bridges, tools and railways|Its symbol comes from the Latin word ferrum.
Copper|Cu|29|solid|wires and water pipes|Old copper roofs turn green in the weather.
Zinc|Zn|30|solid|coatings that keep steel from rusting|Brass is an alloy of this metal and copper.
Silver|Ag|47|solid|mirrors, coins and contacts|No other metal conducts electricity better.
Tin|Sn|50|solid|solder and bronze|A bar of it makes a crackling sound when it is bent.
Iodine|I|53|solid|disinfectant and table salt|When it is warmed, it turns into a violet vapour.
Gold|Au|79|solid|jewellery and electronics|One gram can be beaten into a sheet of more than half a square metre.
Mercury|Hg|80|liquid|old thermometers|It is the only metal that is liquid at 20 °C.
""")
)

ANIMALS = tuple(
    Animal(*row)
    for row in _split("""
sea otter|mammal|the cold coastal waters of the North Pacific|sea urchins, clams and crabs|It often uses a stone as a hammer to open shells.
hedgehog|mammal|gardens and hedges|beetles, worms and caterpillars|An adult carries roughly five thousand spines.
blue whale|mammal|all the great oceans|krill|It is the largest animal known ever to have lived.
giraffe|mammal|African savannas|leaves, above all of acacia trees|Its long neck has seven bones, just as many as yours.
platypus|mammal|streams of eastern Australia|shrimps, worms and insect larvae|It lays eggs, although it feeds its young with milk.
brown bat|mammal|barns, caves and hollow trees|flying insects|It finds its way in the dark by listening for echoes.
red panda|mammal|mountain forests of the eastern Himalayas|mostly bamboo|It wraps its bushy tail around itself to keep warm.
beaver|mammal|rivers and ponds|bark, twigs and water plants|Its front teeth never stop growing.
emperor penguin|bird|Antarctica|fish, squid and krill|The father keeps the egg on his feet for about two months.
barn owl|bird|farms and open country|mice and voles|Its ears sit at different heights, which helps it to locate sounds.
hummingbird|bird|the Americas|nectar and small insects|It is the only kind of bird that can truly fly backwards.
Arctic tern|bird|coastal waters of the far north and the far south|small fish|Every year it flies from the Arctic to the Antarctic and back.
white stork|bird|meadows of Europe, Asia and Africa|frogs, insects and mice|It greets its partner by clattering its bill.
kiwi|bird|the forests of New Zealand|worms and insects|Its nostrils are at the tip of its bill.
leatherback turtle|reptile|the open ocean|jellyfish|It has a leathery skin instead of a hard shell.
chameleon|reptile|Africa, Madagascar and southern Europe|insects|It can look in two directions at once.
tree frog|amphibian|reeds and bushes near ponds|flies and other insects|Sticky pads on its toes let it climb a pane of glass.
axolotl|amphibian|lakes near Mexico City|worms, snails and small fish|It can regrow a lost leg.
Atlantic salmon|fish|rivers and the northern Atlantic|insects when young, fish when grown|It returns to the river where it hatched.
seahorse|fish|shallow seas with sea grass|tiny crustaceans|The father carries the eggs in a pouch.
honey bee|insect|hives and hollow trees|nectar and pollen|A dance tells the other bees where the flowers are.
dragonfly|insect|ponds and slow streams|mosquitoes and other insects|Its young live under water, often for more than a year.
garden snail|mollusc|damp gardens|leaves and algae|It seals its shell with a dry film when the weather is too dry.
octopus|mollusc|rocky sea floors and reefs|crabs and mussels|It has three hearts and blue blood.
""")
)

PLANETS = tuple(
    Planet(name, int(order), kind, year, moons, note)
    for name, order, kind, year, moons, note in _split("""
Mercury|1|rocky planet|about 88 Earth days|no moons|Without thick air to hold the heat, its nights are as extreme as its days.
Venus|2|rocky planet|about 225 Earth days|no moons|Its dense clouds make it the hottest planet of all.
Earth|3|rocky planet|a little over 365 days|one moon|It is the only place where life is known.
Mars|4|rocky planet|about 687 Earth days|two small moons|Rust in its soil gives it a red colour.
Jupiter|5|gas giant|almost twelve Earth years|dozens of moons|Its Great Red Spot is a storm wider than Earth.
Saturn|6|gas giant|about 29 Earth years|well over a hundred known moons|Its bright rings consist mainly of pieces of ice.
Uranus|7|ice giant|about 84 Earth years|more than two dozen known moons|It is tipped over so far that it seems to roll around the Sun.
Neptune|8|ice giant|about 165 Earth years|more than a dozen known moons|Its place in the sky was calculated before it was found.
""")
)

INSTRUMENTS = tuple(
    Instrument(*row)
    for row in _split("""
violin|string|a bow pulls the strings sideways and lets them snap back hundreds of times a second|It has four strings, tuned a fifth apart.
cello|string|a bow sets four long strings in motion|The player holds it between the knees, and a spike carries its weight.
harp|string|fingers pluck the strings|A concert harp has seven pedals that change the pitch of its strings.
guitar|string|fingers or a plectrum pluck the strings, and the hollow body makes them loud|Most guitars have six strings.
piano|keyboard|felt hammers strike the strings|A standard piano has 88 keys.
organ|keyboard|wind flows through pipes of many lengths|The longest pipes can be as tall as a house.
flute|woodwind|the player blows across an edge, and the air in the tube begins to vibrate|Modern concert flutes are usually made of metal.
clarinet|woodwind|a single reed opens and closes the stream of air|Its deep notes have a name of their own, chalumeau.
oboe|woodwind|two thin reeds vibrate against each other|An orchestra tunes to its A.
trumpet|brass|the player's lips buzz in the mouthpiece|Three valves make the tube longer and the note lower.
trombone|brass|the player's lips buzz, and a slide changes the length of the tube|It can glide from one note to the next without a gap.
timpani|percussion|a stick strikes a skin that is stretched over a copper bowl|A pedal changes the tension of the skin and so the pitch.
""")
)


def with_article(noun: str) -> str:
    """`noun` with "a" or "an"; right for every noun in the tables above."""
    return f"{'an' if noun[0] in 'aeioAEIO' else 'a'} {noun}"
