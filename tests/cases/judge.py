"""Which checks there are, and what they say of evidence. A check's parameters are those of its function. Knows no single check."""

import inspect
from collections.abc import Callable

from tests.cases.case import Case, Check
from tests.cases.checks import output, prompt, protocol, reuse, service, timing
from tests.cases.controls import CONTROLS
from tests.cases.evidence import Evidence, NotThere

GROUPS = (output, prompt, protocol, reuse, service, timing)
CHECKS: dict[str, Callable[..., str | None]] = {
    function.__name__: function for group in GROUPS for function in group.CHECKS
}
NEEDS = frozenset(
    {
        "scripted_model",
        "restart",
        "host_tier",
        "disk_tier",
        "db_control",
        "fault_injection",
        "cache_flush",
    }
)


def absent(case: Case) -> str | None:
    """Why a case can't be played here: what it wants that there isn't. None when it can."""
    wanted = [f"need {each}" for each in sorted(case.needs - NEEDS)]
    wanted += [f"control {each.name}" for each in case.controls() if each.name not in CONTROLS]
    wanted += [lack for each in case.checks if (lack := _unknown(each))]
    return ", ".join(dict.fromkeys(wanted)) or None


def _unknown(check: Check) -> str | None:
    function = CHECKS.get(check.name)
    if function is None:
        return f"check {check.name}"
    known = inspect.signature(function).parameters
    strange = [key for key in check.parameters if key not in known]
    return f"check {check.name} with {', '.join(strange)}" if strange else None


def judge(check: Check, evidence: Evidence) -> str | None:
    """None when it holds, else why not."""
    try:
        return CHECKS[check.name](evidence, **check.parameters)
    except NotThere as lack:
        return str(lack)
