"""The document of a page with all that its first view needs:
the modules are asked for at once, not one after the other as
each names the next, and all style sheets are one. Pure, but
for the files that it reads."""

import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

IMPORT = re.compile(r'(?:^|[;}])\s*(?:import|export)\b[^;"]*?\bfrom\s*"([^"]+)"', re.MULTILINE)
MAP = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)
SHEET = re.compile(r'<link rel="stylesheet" href="([^"]+)">\n')
ENTRY = re.compile(r'<script type="module" src="([^"]+)"></script>')
STYLE = "/style.css"
Folders = Mapping[str, Path]
"""Beginning of an address -> the folder that is served there."""


def file_of(address: str, folders: Folders) -> Path:
    """Raises StopIteration for an address that no folder serves."""
    begin = next(each for each in folders if address.startswith(each))
    return folders[begin] / address.removeprefix(begin)


def style(index: str, folders: Folders) -> str:
    """All style sheets of a document, in its order."""
    return "\n".join(file_of(each, folders).read_text() for each in SHEET.findall(index))


def document(index: str, folders: Folders, view: str) -> str:
    """The document with one style sheet, and a link for each module behind its entry and a view."""
    first, *_others = SHEET.findall(index)
    one_sheet = index.replace(first, STYLE, 1)
    whole = SHEET.sub(lambda each: each[0] if each[1] == STYLE else "", one_sheet)
    links = "".join(f'<link rel="modulepreload" href="{each}">\n' for each in modules(index, folders, view))
    return whole.replace("</head>", f"{links}</head>", 1)


def modules(index: str, folders: Folders, view: str) -> list[str]:
    """Addresses of the modules that a document's entry and a view import, themselves and in turn, each once."""
    (mapped,), (entry,) = MAP.findall(index), ENTRY.findall(index)
    bare: dict[str, str] = json.loads(mapped)["imports"]
    waiting, seen = [entry, view], list[str]()
    while waiting:
        address = waiting.pop(0)
        if address in seen:
            continue
        seen.append(address)
        for name in IMPORT.findall(file_of(address, folders).read_text()):
            beside = posixpath.normpath(posixpath.join(posixpath.dirname(address), name))
            waiting.append(bare.get(name, beside if name.startswith(".") else name))
    return seen
