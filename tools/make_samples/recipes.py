"""Recipes: ingredients and steps by name."""

from __future__ import annotations

RECIPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "lentil soup": (
        ("250 g red lentils", "1 onion", "2 carrots", "1 tin of tomatoes", "1 litre of stock", "1 teaspoon cumin"),
        (
            "Chop the onion and the carrots.",
            "Fry them gently in a little oil for five minutes.",
            "Add everything else and simmer for 25 minutes.",
        ),
    ),
    "pancakes": (
        ("200 g flour", "2 eggs", "400 ml milk", "a pinch of salt", "butter for the pan"),
        (
            "Whisk flour, eggs, milk and salt until smooth.",
            "Let the batter rest for 20 minutes.",
            "Bake thin rounds in a hot, buttered pan.",
        ),
    ),
    "tomato salad": (
        ("6 ripe tomatoes", "1 small red onion", "3 spoons of olive oil", "1 spoon of vinegar", "a handful of basil"),
        ("Slice the tomatoes and the onion.", "Stir oil, vinegar and salt together.", "Mix, tear the basil over it, and serve at once."),
    ),
    "oat biscuits": (
        ("200 g oats", "100 g butter", "80 g sugar", "1 egg", "2 spoons of flour"),
        ("Melt the butter.", "Stir in the other ingredients.", "Bake small heaps at 180 °C for 12 minutes."),
    ),
    "fried rice": (
        ("400 g cold cooked rice", "2 eggs", "100 g peas", "2 spring onions", "2 spoons of soy sauce"),
        ("Scramble the eggs and set them aside.", "Fry the rice with the peas over high heat.", "Add soy sauce, eggs and spring onions."),
    ),
    "apple crumble": (
        ("5 apples", "150 g flour", "100 g cold butter", "80 g sugar", "1 teaspoon cinnamon"),
        (
            "Peel the apples, cut them up and put them in a dish.",
            "Rub flour, butter, sugar and cinnamon to crumbs.",
            "Cover the apples and bake for 35 minutes at 190 °C.",
        ),
    ),
    "hummus": (
        ("1 tin of chickpeas", "2 spoons of tahini", "1 lemon", "1 clove of garlic", "a pinch of cumin"),
        (
            "Drain the chickpeas and keep some of the water.",
            "Blend everything until creamy.",
            "Thin it with the water and season with salt.",
        ),
    ),
    "vegetable omelette": (
        ("3 eggs", "half a pepper", "a handful of spinach", "30 g cheese"),
        ("Soften the chopped pepper in butter.", "Add the spinach, then the beaten eggs.", "Scatter the cheese over it and fold when set."),
    ),
    "flatbread": (
        ("300 g flour", "180 ml warm water", "2 spoons of yoghurt", "1 teaspoon salt"),
        (
            "Knead a soft dough and let it rest for half an hour.",
            "Roll out eight thin rounds.",
            "Bake each in a dry, very hot pan until it puffs.",
        ),
    ),
    "potato gratin": (
        ("1 kg potatoes", "300 ml cream", "200 ml milk", "1 clove of garlic", "nutmeg"),
        (
            "Rub a dish with the garlic.",
            "Layer thin slices of potato with salt and nutmeg.",
            "Pour milk and cream over them and bake for an hour at 170 °C.",
        ),
    ),
}
