"""Reading story files: plain text, stories separated by a line that says <|endoftext|>."""

from pathlib import Path

SEPARATOR = "<|endoftext|>"


def read_stories(path: Path) -> list[str]:
    """Returns the stories of one file, without the separators and the blank space around them."""
    text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
    stories = (story.strip() for story in text.split(SEPARATOR))
    return [story for story in stories if story]
