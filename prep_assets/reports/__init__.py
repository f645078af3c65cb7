"""Pages about stores for people: one HTML file that holds its data and works offline."""
