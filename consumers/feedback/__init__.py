"""People judge: a page, and what it writes. Deletable without harm."""
