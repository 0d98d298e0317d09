"""What does the running model draw? Pictures of digits."""

import matplotlib.pyplot as plt


def pictures(rows):
    """Draw rows of 8×8 pictures of greys from 0 to 16; `rows` maps a row's label to (count, 8, 8) greys."""
    count = max(len(row) for row in rows.values())
    figure, axes = plt.subplots(len(rows), count, figsize=(0.62 * count, 0.72 * len(rows)), squeeze=False)
    for line, (label, row) in zip(axes, rows.items(), strict=True):
        for place, picture in zip(line, row, strict=True):
            place.imshow(picture, cmap="gray_r", vmin=0, vmax=16)
            place.set(xticks=[], yticks=[])
        line[0].set_ylabel(label, rotation=0, ha="right", va="center")
    figure.tight_layout(pad=0.3)
    plt.show()
