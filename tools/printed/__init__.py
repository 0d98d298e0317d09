"""The whole book as one document, to print or to read far from a network."""
