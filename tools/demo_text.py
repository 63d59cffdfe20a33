"""Plain text of the Python standard library: documentation topics, docstrings and source, for the demo model's data."""

from __future__ import annotations

import ast
import sysconfig
from functools import cache
from importlib import import_module
from pathlib import Path

from tools.demo_words import words

MODULES = words(
    "argparse asyncio.base_events collections.__init__ configparser csv datetime dataclasses decimal difflib email.message "
    "enum fractions functools heapq http.client inspect ipaddress json.decoder json.encoder logging.__init__ "
    "mailbox os pathlib pickle queue random re.__init__ sched shutil socket sqlite3.__init__ statistics string "
    "subprocess tarfile tempfile textwrap threading tokenize turtle typing unittest.case urllib.parse urllib.request "
    "uuid weakref xml.dom.minidom zipfile"
)


def topics() -> list[str]:
    """The language reference as pydoc carries it, one string a topic."""
    return list(import_module("pydoc_data.topics").topics.values())


def source(module: str) -> str:
    root = Path(sysconfig.get_paths()["stdlib"])
    file = root / (module.replace(".", "/") + ".py")
    return file.read_text(encoding="utf-8") if file.exists() else ""


def docstrings(text: str) -> list[str]:
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Module, ast.AsyncFunctionDef)
    found = [ast.get_docstring(n) for n in ast.walk(ast.parse(text)) if isinstance(n, kinds)]
    return [d for d in found if d]


@cache
def paragraphs() -> tuple[str, ...]:
    """Prose paragraphs of 80 to 900 characters, whitespace joined, no code and no reST marks."""
    texts = topics() + [d for m in MODULES for d in docstrings(source(m))]
    out = []
    for text in texts:
        for part in text.split("\n\n"):
            flat = " ".join(part.split())
            good = (
                80 <= len(flat) <= 900
                and flat[0].isupper()
                and flat[-1] in ".:"
                and "::" not in flat
            )
            if good and not any(mark in flat for mark in ("==", ">>>", "**", "|")):
                out.append(flat)
    return tuple(dict.fromkeys(out))


def corpus() -> list[str]:
    """Everything the tokenizer may learn merges from besides the generated conversations."""
    return topics() + [source(m) for m in MODULES]
