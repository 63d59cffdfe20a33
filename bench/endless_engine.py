"""The engine process, except that no token ends an answer: its length is then the one asked for. Knows one seam of engine.serve."""

import sys
from typing import Any

import engine.serve
from engine.assemble import Assembly, assemble


def endless(*arguments: Any, **named: Any) -> Assembly:
    assembly = assemble(*arguments, **named)
    assembly.loop.stop_token_ids = frozenset()
    return assembly


if __name__ == "__main__":
    vars(engine.serve)["assemble"] = endless
    sys.exit(engine.serve.main())
