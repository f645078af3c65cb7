"""Everyday questions, each with a good answer and a weaker one, from which preference pairs are written.

A block is a question, a good answer (``+``) and a weak answer (``-``), each on a line and those indented below it. ``/`` in an answer
starts a new line.
"""

from __future__ import annotations

from dataclasses import dataclass

_BLOCKS = """
How do I get red wine out of a tablecloth?
+ Blot it at once with a clean cloth, do not rub. Then pour cold water through the back of the stain, cover it with salt for a
  while, and wash it as the label says.
- Just wash it hot. It will probably be fine.

My basil keeps dying on the windowsill. What am I doing wrong?
+ Supermarket basil is usually many seedlings crowded in one pot. Divide it into three or four pots, give it plenty of light, water
  from below, and pick the tips rather than single leaves.
- Basil is a plant. Plants need water.

Can you suggest a quick breakfast without sugar?
+ Sure! Try one of these:/- plain yoghurt with nuts and an apple/- wholegrain toast with egg and tomato/- porridge with cinnamon and
  berries
- You could have cornflakes with syrup.

What is a polite way to decline a wedding invitation?
+ Thank them warmly, say no clearly and early, and add a wish: "Thank you so much for thinking of us. Sadly we can't be there, but
  we wish you a wonderful day."
- Don't answer. They will notice when you are not there.

How often should I wash my pillowcase?
+ About once a week for most people, and more often if you have a cold or sensitive skin.
- Never, washing wears out the fabric.

My neighbour plays loud music at night. How should I talk to him?
+ Choose a calm moment in the daytime, describe what you hear and when, and ask for something specific, such as headphones after
  ten. Many people simply don't know how far sound travels.
- Bang on the wall until he stops. If he doesn't, play your own music louder.

How can I remember people's names better?
+ Repeat the name as soon as you hear it, connect it to a picture in your mind, and use it once when you say goodbye.
- Some people are bad with names, and nothing can be done about it.

What should I bring on a day hike?
+ Water, something to eat, a rain jacket, a map or a charged phone, sun protection and a small first-aid kit. Tell someone where you
  are going.
- Shoes.

Why does my bread not rise?
+ Usually the yeast is too old, the water was too hot, or the dough was too cold. Test the yeast in lukewarm water with a pinch of
  sugar: it should foam within ten minutes.
- Because you made a mistake when you baked it.

How do I fold a fitted sheet?
+ Put your hands in two neighbouring corners, tuck one corner into the other, do the same with the other two, and lay the sheet on a
  table. Now fold the edges in until it is a rectangle.
- Nobody can fold those. Roll it into a ball.

I am nervous about a job interview tomorrow. Any advice?
+ Prepare three short stories about things you did well, write down two questions for them, and plan your way there. A few slow
  breaths before you enter help more than another hour of reading.
- If you are nervous, you are probably not ready for the job.

What is the best way to store onions?
+ Keep them dry, dark and airy, for instance in a net or a basket, and away from potatoes, which make them sprout.
- In a closed plastic bag next to the potatoes.

How do I teach my child to ride a bicycle?
+ Start with the pedals off and let the child push along with both feet. Once it glides with ease, put the pedals back and practise
  on a gentle slope with grass beside it.
- Give the bicycle a strong push and let go.

How long should I boil an egg?
+ From boiling water: about six minutes for a soft yolk, eight for a creamy one and ten for a firm one. Then cool it in cold water.
- Until it is done.

Can I water houseplants with cooking water?
+ Yes, if it is cooled and has no salt in it. Water from boiled vegetables even holds some minerals. With salt in it, it harms the
  roots.
- Yes, always, the saltier the better.

How do I sharpen a kitchen knife with a stone?
+ Wet the stone, hold the blade at about fifteen to twenty degrees, and draw it over the stone from heel to tip, the same number of
  strokes on each side. Finish on the fine side.
- Rub it on something hard for a while.

What can I do against hiccups?
+ They pass by themselves, but many people find that holding the breath for ten seconds or sipping cold water slowly helps. If they
  last for two days, see a doctor.
- Have a friend chase you around the house.

How can I save money on groceries?
+ Plan the week's meals, write a list, and buy staples such as rice and beans in bigger bags. Compare the price per kilogram, not
  per packet.
- Spend less.

Is it all right to say no to extra work?
+ Yes. Say what you have on your desk, ask which task should wait, and offer a date that you can keep. That is honest and helps your
  manager to plan.
- Say yes and then do not do it.

How do I start learning to draw?
+ Draw small things around you for ten minutes every day, look more at the thing than at the paper, and keep the sheets, so that you
  see how far you get in a month.
- Drawing is a talent. Either you have it or you don't.

What is a good way to wake up earlier?
+ Move the alarm by fifteen minutes every few days, get light into your eyes soon after waking, and go to bed earlier by the same
  fifteen minutes.
- Set twelve alarms and ignore the first eleven.

How do I clean a burnt pot?
+ Cover the bottom with water and two spoons of baking soda, bring it to the boil, and let it stand for an hour. Most of it then
  comes off with a wooden spoon.
- Buy a new pot, they are not expensive.

What does it mean when the cat brings me mice?
+ She treats you as family and shares her catch, or she simply stores it in a safe place. Scolding does not help; a bell on the
  collar and a game before dusk might.
- It means that she hates you.

How do I make friends in a new city?
+ Go to the same place regularly: a choir, a sports club, a language table. Friendship needs repeated meetings, so a weekly date
  works better than a big party.
- Wait until somebody talks to you.

Can you explain what compost is?
+ Compost is plant waste that fungi, bacteria and worms have turned into dark, crumbly soil. Mix green scraps with dry leaves, keep
  it moist and turn it now and then.
- Compost is compost. You put it in the garden.

How do I choose a ripe melon?
+ Lift it: a ripe one is heavy for its size. A cantaloupe smells sweet at the stem end, and a watermelon has a creamy yellow spot
  where it lay on the ground.
- Take the first one that you see.

How can I help a friend who is sad?
+ Listen without fixing, ask what would help today, and offer something concrete, such as a walk or a meal. Check in again after a
  few days.
- Tell your friend that others have it worse.

What is the difference between a fruit and a vegetable?
+ In botany, a fruit develops from a flower and holds seeds, so tomatoes are fruits. In the kitchen the words follow taste: sweet
  things are fruit, savoury ones vegetables.
- Vegetables are green and fruits are not.

How do I keep my houseplants alive while I travel?
+ Move them out of the direct sun, water them well, and lead a cotton string from a bowl of water into each pot. It will drink for a
  week or two.
- Put them in a dark cupboard so that they sleep.

How do I write a thank-you note?
+ Name the gift, say how you use it, and add one line about the person. Three honest sentences by hand are plenty.
- Write "thanks" and send it.

Which side of aluminium foil should face the food?
+ It makes no difference. One side is shiny only because of how the last rolling is done.
- The shiny side, otherwise the food is ruined.

How do I get rid of fruit flies?
+ Put a little vinegar, a drop of dish soap and some water in a glass. Take away ripe fruit and rinse the drain, and they will be
  gone in a few days.
- Leave a banana out for them.

What is a fair way to split chores with flatmates?
+ List every chore with the minutes it takes, let each person pick in turn until the minutes are even, and swap once a month.
- Whoever minds the dirt most should clean.

How do I change a bicycle tube?
+ Take the wheel out, lever one side of the tyre over the rim, and pull the tube out. Feel inside the tyre for a thorn, put the new
  tube in slightly inflated, and press the tyre back by hand.
- Take the old one out and put the new one in.

Why do my glasses fog up in winter?
+ The lenses are cold, and the moist air of the room condenses on them. Let them warm up slowly, or wash them with a drop of soap
  and let it dry for a thin film.
- Because your eyes are too warm.

How do I explain rain to a four-year-old?
+ You could say: "The sun lifts tiny drops from the sea up to the sky. They huddle together in a cloud, and when the cloud is too
  heavy, they all come down again."
- Precipitation results from the coalescence of hydrometeors above the condensation level.

How much water should I give a cactus?
+ In summer, soak it and let the soil dry out fully before the next time, roughly every two weeks. In winter hardly any, perhaps
  once a month.
- A glass every morning.

Any tips for packing a small suitcase?
+ Roll soft clothes, put shoes in a bag along the edge, and choose three colours that go together. Wear the heaviest things on the
  way.
- Take a bigger suitcase.

How do I stop losing my keys?
+ Give them one home by the door, a hook or a bowl, and put them there before you do anything else. After two weeks it is a habit.
- Have more keys made.

What should I say when I forgot a birthday?
+ Call rather than write, say sorry once without excuses, and then make it about them: "I'm late, but I'd love to take you for
  coffee. How was your day?"
- Say that your calendar is broken.

How can I make my coffee less bitter?
+ Grind a little coarser, use water just below boiling, and shorten the brewing time. If it is still bitter, try a lighter roast.
- Add six spoons of sugar.

Is it safe to eat bread after cutting off the mould?
+ Better not. Mould grows thin threads through soft bread far beyond the spot that you see, so throw the loaf away.
- Sure, mould is natural.

How do I hang a picture straight?
+ Mark two points at the same height with a spirit level, or stretch a thread between them, and use two nails instead of one. Then
  it cannot tilt.
- Tilt your head until it looks right.

What can I cook with leftover rice?
+ Fried rice with egg and peas is the classic. It also goes well into soup, stuffed peppers, or a salad with beans and lemon. Keep
  it in the fridge and use it within a day.
- Leave it on the stove for a few days and then decide.

How do I learn a few words of a language before a trip?
+ Pick twenty phrases that you will really need, hear a native speaker say them, and say them aloud every day while you brush your
  teeth.
- Speak English slowly and loudly. Everyone will understand.

Why do leaves change colour in autumn?
+ Trees take back the green chlorophyll before winter. Yellow pigments that were there all along become visible, and some trees make
  red ones as well.
- They are painted by the cold.

How do I ask for a pay rise?
+ Write down what you achieved and what the market pays, ask for a meeting, name a figure, and then stay silent for a moment. If it
  is no, ask what would make it a yes in six months.
- Threaten to leave and see what happens.

How do I tie a tie?
+ Cross the wide end over the narrow one, bring it behind, over the front again, up through the loop at the neck and down through
  the knot. Tighten it gently. That is the four-in-hand.
- Use a knot.

How can we make a long car ride easier for the children?
+ Stop every two hours, take an audiobook and a bag of small surprises, and play games that need no screen, such as spotting things
  from A to Z.
- Tell them to be quiet.

What is a good first houseplant?
+ A spider plant. It forgives missed watering, does well in most light, and makes little plantlets that you can give away.
- An orchid from the rainforest that needs special light and mist.

How do I get candle wax off a wooden table?
+ Let it harden, lift it carefully with a plastic card, then lay paper over the rest and warm it with a hair dryer, so that the
  paper soaks it up.
- Scratch it off with a knife.

How can I stay focused while studying?
+ Put the phone in another room, work for 25 minutes, rest for five, and write down beforehand what "done" means today.
- Drink coffee until it works.

Should I rinse pasta after cooking?
+ For warm dishes no: the starch helps the sauce to stick. For a pasta salad yes, since it stops the cooking.
- Always rinse it for at least ten minutes.

How do I read a weather map?
+ Look for H and L first. Air flows out of highs, which bring settled weather, and into lows, which bring wind and rain. Lines close
  together mean strong wind; a line with triangles is a cold front.
- Red is hot and blue is cold, that is all.

My phone battery is empty by noon. What can I check?
+ Look in the settings which apps use most, lower the brightness, and switch off background refresh for those you don't need. A
  battery that is several years old may simply be worn out.
- Charge it at noon.

How do I make a good cup of green tea?
+ Use water of about 75 °C, two grams of leaves a cup, and steep for two minutes. Hotter water makes it bitter.
- Boil the leaves for a quarter of an hour.

What games can eight people play without any material?
+ Charades, twenty questions, "two truths and a lie", or a story in which each person adds one sentence.
- Chess.

How do I apologise to a colleague?
+ Say what you did, what it caused, and what you will do differently; leave out the word "but". Then give them time.
- Say "sorry if you were offended".

How do I keep a salad fresh for lunch?
+ Put the dressing at the bottom of a jar, then firm vegetables, then grains, and the leaves on top. Turn it over only when you eat.
- Mix it in the morning and leave it in the sun.

What is the easiest knot for tying a parcel?
+ A packer's knot: it slides tight, and a half hitch locks it. If you know none, a simple overhand knot with a friend's finger on it
  works too.
- Use as much tape as you can find.

How can I fall asleep faster?
+ Keep the room cool and dark, stop looking at screens an hour before, and get up at the same time every day. If you lie awake, get
  up and read something dull.
- Try harder.

How do I build a simple bird feeder?
+ Cut two windows into a clean milk carton, push a stick through below them as a perch, fill it with seeds to the edge, and hang it
  where cats cannot jump.
- Throw bread out of the window.

Why is my tap dripping, and can I fix it?
+ Most often the rubber washer is worn. Turn off the water, unscrew the handle, replace the washer with one of the same size, and
  put it together again.
- Put a bucket under it.

What is a nice way to welcome new neighbours?
+ Ring in the early evening, introduce yourself in two sentences, bring something small such as biscuits, and tell them which day
  the bins are emptied.
- Watch them through the curtain for a year.

How do I count calories in a home-made soup?
+ Add up the calories of every ingredient from its packet, weigh the finished soup, and divide. Then you know the calories per 100
  grams of your bowl.
- Soup is mostly water, so it has none.

Can dogs eat chocolate?
+ No. It contains theobromine, which dogs break down very slowly, and dark chocolate is the most dangerous. If yours ate some, call
  a vet and say how much and how heavy the dog is.
- Yes, as a treat on Sundays.
"""


@dataclass(frozen=True, slots=True)
class Everyday:
    """A question with a good answer and a weak one."""

    question: str
    good: str
    weak: str


def _parsed(block: str) -> Everyday:
    question, good, weak = block.strip().replace("\n  ", " ").split("\n")
    return Everyday(question, *(answer[2:].replace("/", "\n") for answer in (good, weak)))


EVERYDAY = tuple(_parsed(block) for block in _BLOCKS.strip().split("\n\n"))
