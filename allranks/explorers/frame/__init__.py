"""What are all explorers made of? Controls, grips, marks as SVG, numbers in words, and what shows them."""
