"""Short documents that are written out by hand: stories, explanations and a little code."""

from __future__ import annotations

ESSAYS = (
    """The clock that ran backwards

In the waiting room of a small station hung a clock that ran backwards. Nobody knew who had built it. Travellers set
their watches by it once, missed their trains, and never trusted it again.

The stationmaster loved it all the same. "It tells the right time four times a day," she said, "and it is the only clock
here that gives some back."

One winter evening the snow closed the line, and twelve people had to spend the night on the benches. They told
stories until the stove went cold. In the morning, when the plough came through, every one of them swore that the
night had been shorter than the evening.""",
    """How to measure a tree

You do not need to climb a tree to know how tall it is. On a sunny day, push a stick of one metre upright into the
ground and measure its shadow. Then measure the shadow of the tree.

Suppose the stick's shadow is 0.8 metres and the tree's shadow is 12 metres. Both shadows are made by the same sun, so
the tree is as many times taller than its shadow as the stick is: 12 / 0.8 = 15. The tree is 15 metres tall.

On a cloudy day, fold a square of paper into a triangle and look along its long edge. Walk backwards until you see the
top of the tree. Your distance from the trunk plus the height of your eyes is the height of the tree.""",
    """Counting words with Python

A dictionary is a good place to count things. The function below reads a text, splits it into words and counts each of them.

def count_words(text):
    counts = {}
    for word in text.lower().split():
        word = word.strip(".,;:!?")
        counts[word] = counts.get(word, 0) + 1
    return counts

print(count_words("One fish, two fish."))

The output is {'one': 1, 'fish': 2, 'two': 1}. The standard library has a ready-made class for this,
collections.Counter, but it is worth writing the loop once yourself.""",
    """Why a mean can mislead

Five friends earn 20, 22, 24, 26 and 28 coins a day. Their mean is 24, and so is the number in the middle, the median.

Now a sixth friend joins who earns 300. The mean jumps to 70, although nobody except the newcomer earns anything like
it. The median only moves from 24 to 25.

Whenever a few values are far larger than the others, as with house prices or the lengths of documents, look at the
median as well.""",
    """The baker's dozen

A dozen is twelve, and a baker's dozen is thirteen. The usual story is that bakers in medieval England were fined for
loaves that weighed too little. To be safe, they added one more to each dozen.

Whether or not this is the whole truth, the extra loaf has survived in the language. Somebody who gives you a little
more than you paid for still gives you a baker's dozen.""",
    """A letter from the lighthouse

Dear Rosa,

the storm has passed, and the sea looks as if it had never heard of wind. I counted eleven ships today. One of them
dipped its flag, and I waved with the tea towel.

You asked what one does all day on a rock. One climbs stairs, one hundred and forty-two up and one hundred and
forty-two down. One cleans the glass. One learns which gull steals and which one only pretends.

Come in June, when the boat runs twice a week, and bring oranges.

Your Ivo""",
    """Two ways to search

Imagine a list of a thousand names in alphabetical order. If you look at one name after another, you may have to read
all thousand of them.

There is a faster way. Look at the name in the middle. If yours comes earlier in the alphabet, forget the second half;
otherwise forget the first. Repeat this with the half that is left. Ten steps are enough, because 2 to the power of 10
is 1,024.

def search(names, wanted):
    low, high = 0, len(names)
    while low < high:
        middle = (low + high) // 2
        if names[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low

This is called binary search. It only works if the list is sorted.""",
    """The market on Saturday

By six the square is still blue and cold, and the only sound is of poles being pushed into sockets. By seven there are
awnings, by eight there are queues, and by nine you can no longer see the fountain.

The cheese seller never weighs anything twice. The man with the mushrooms tells everybody the same joke. At the end of
the row an old woman sells exactly three things: eggs, dill and advice.

At two the square is empty again. A sparrow hops over the wet stones and inspects what has been left for it.""",
    """Was ist ein Föhn?

Der Föhn ist ein warmer, trockener Fallwind, der vor allem am Nordrand der Alpen weht. Feuchte Luft steigt auf der
einen Seite des Gebirges auf, kühlt ab und verliert dort einen Teil ihres Wassers als Regen oder Schnee.

Auf der anderen Seite sinkt sie wieder ab und erwärmt sich dabei um etwa ein Grad je hundert Meter. Der Himmel wird
klar, die Berge scheinen näher zu rücken, und manche Menschen klagen über Kopfschmerzen.""",
    """Le chat du libraire

Dans la librairie de la rue étroite vivait un chat gris qui dormait toujours sur les livres les plus chers. Le
libraire ne le chassait jamais.

« Il a bon goût, disait-il. Hier, il a choisi les poèmes ; aujourd'hui, c'est l'atlas. » Les clients souriaient, et
plus d'un repartait avec le livre encore tiède sous le bras.""",
    """El jardín de la abuela

Detrás de la casa, mi abuela tenía un jardín pequeño con tomates, albahaca y tres rosales. Cada mañana regaba las
plantas antes de desayunar y les contaba las noticias del pueblo.

«Las plantas escuchan mejor que las personas», decía. Cuando le preguntaba por qué, me daba un tomate maduro y
respondía: «Prueba».""",
    """小城的早晨

清晨五点，小城还没有醒来。卖豆浆的老人推着车走过石桥，车轮轻轻地响。河面上有一层薄雾，远处的山像一幅淡淡的水墨画。

六点，第一家包子铺开了门，热气从窗口冒出来。上学的孩子们一边走一边笑，手里拿着刚出笼的包子。

七点，太阳升过屋顶，雾散了，新的一天开始了。""",
    """茶的颜色

茶叶都来自同一种植物，只是做法不同。绿茶不发酵，颜色清绿；红茶完全发酵，颜色红亮；乌龙茶介于两者之间。

泡绿茶时，水不要太烫，八十度左右最好。泡红茶时，可以用刚烧开的水。""",
    """Reading a bar code

Look at the last digit under a bar code with thirteen digits. It is there to catch mistakes. Add the first, third,
fifth digit and so on, up to the eleventh; add three times the second, fourth, sixth and so on, up to the twelfth. The
last digit makes the sum a multiple of ten.

Take the digits 4 0 0 6 3 8 1 3 3 3 9 3. The odd places give 4 + 0 + 3 + 1 + 3 + 9 = 20, the even places give 0 + 6 +
8 + 3 + 3 + 3 = 23, and three times 23 is 69. The sum is 89, so the last digit must be 1.""",
    """Rules of a quiet carriage

1. Telephones sleep.
2. Conversations are whispered, and short.
3. Crisps are eaten before departure.
4. Whoever snores may be woken, kindly.
5. Looking out of the window is encouraged.""",
    """The shape of snow

No two snowflakes are quite alike, but almost all of them have six arms. The reason lies in the water molecule. When
water freezes, its molecules join in rings of six, and a crystal that grows from such rings keeps their angles.

How the arms branch depends on the temperature and the moisture on the way down. Around minus fifteen degrees the
flakes grow into stars; near minus six they become slender needles.""",
)
