"""What Kafka is told, in a file of Java's."""

from pathlib import Path

from claw_r1.claw.local.kafka.config import server_properties


def test_a_folder_of_any_name_stands_in_ascii() -> None:
    """Java reads such a file byte for byte as Latin-1, and a backslash as the beginning of something."""
    text = server_properties(Path("/home/jürgen/日本 🦀/a\\b"), 1, 2)
    (line,) = (each for each in text.splitlines() if each.startswith("log.dirs="))
    assert line == r"log.dirs=/home/j\u00fcrgen/\u65e5\u672c \ud83e\udd80/a\u005cb"
    assert text.isascii()
