"""The size budgets: files of at most 400 lines, functions of at most 60, medians far below. Kernels excepted."""

import ast
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
HARD_FILE_LINES = 400
HARD_FUNCTION_LINES = 60
MEDIAN_FUNCTION_LINES = 10


def sources() -> list[Path]:
    return [
        path
        for package in ("ninfer_proxy", "engine")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "triton.py"
    ]


def function_lengths(path: Path) -> list[tuple[int, str]]:
    tree = ast.parse(path.read_text())
    return [
        (
            (node.end_lineno or node.lineno) - node.lineno + 1,
            f"{path.relative_to(ROOT)}:{node.name}",
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_files_fit_the_budget() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    too_long = {name: lines for name, lines in sizes.items() if lines > HARD_FILE_LINES}
    assert not too_long


def test_functions_fit_the_budget() -> None:
    lengths = [entry for path in sources() for entry in function_lengths(path)]
    assert not [entry for entry in lengths if entry[0] > HARD_FUNCTION_LINES]
    assert median(length for length, _ in lengths) <= MEDIAN_FUNCTION_LINES


def test_each_module_says_what_it_owns() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sources()
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent
