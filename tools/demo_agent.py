"""Agent surroundings for the demo model's data: tools, commands with outputs, system prompts, transient items.

Everything here is invented by rule from the word lists or taken from the standard library's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tools.demo_words import (
    CITIES,
    DAYS,
    MONTHS,
    PLAIN,
    THINGS,
    clock,
    code,
    digits,
    made_up,
    name,
    pick,
    word,
    words,
)

SHELL_NAMES = words(
    "exec exec exec exec bash bash shell shell run_command run_command terminal execute_command run_shell sh cmd run "
    "shell_exec execute command_line console run_bash system shell_command exec_command Bash run_shell_command "
    "run_terminal_cmd execute_bash run_in_terminal bash_tool execute_shell runCommand run_terminal_command sandbox_exec"
)
HELD_SHELL_NAMES = words("run_terminal shell_run bash_command exec_shell terminal_exec local_shell")
NAME_PARTS = words(
    "run exec execute shell bash cmd command terminal sh console local remote sandbox system process line script host os tool "
    "my user safe linux session task job call do"
)
SHELL_PARAMS = words("command command command command cmd script input line shell_command")
SHELL_TEXT = (
    "Run a shell command.",
    "Run a command in the shell and return its output.",
    "Executes a shell command on this machine.",
    "Run shell now; returns what the command prints.",
    "Execute a bash command in the workspace.",
    "Runs one command line and gives back stdout and stderr.",
    "Shell access: run a program and read its output.",
    "Use this to run commands. Output is returned directly.",
    "Run a shell command and return its output.",
    "Start a command line on the host and wait for its end.",
    "Runs commands in a terminal session.",
    "Execute the given command line; the result is its output.",
    "A bash shell for commands.",
)
OTHER_TOOLS = (
    ("read", "Read a text file.", ("path", "offset", "limit")),
    ("write", "Write a file; makes parent folders.", ("path", "content")),
    ("edit", "Replace exact text in one file.", ("path", "old_text", "new_text")),
    ("apply_patch", "Patch one or many files.", ("input",)),
    ("ls", "List the entries of a directory.", ("path", "limit")),
    ("process", "Control background processes: list, poll, log, kill.", ("action", "session", "data")),
    ("search", "Search the web.", ("query", "count")),
    ("fetch", "Fetch a page by its address.", ("url", "format")),
    ("grep", "Search the contents of files.", ("pattern", "path", "glob")),
    ("glob", "Find files by a name pattern.", ("pattern", "path")),
    ("memory_search", "Search saved notes.", ("query",)),
    ("memory_get", "Read a part of a saved note.", ("path", "lines")),
    ("message", "Send a message to a channel.", ("target", "text")),
    ("todo", "Keep a list of tasks.", ("items",)),
    ("calendar", "Read or add events.", ("date", "title")),
    ("weather", "Current weather of a city.", ("city",)),
    ("image", "Look at an image file.", ("path", "prompt")),
    ("tool_search", "Search the catalog of further tools.", ("query",)),
    ("tool_describe", "Load the full schema of one tool.", ("id",)),
    ("tool_call", "Call a tool of the catalog by its id.", ("id", "args")),
    ("sessions_yield", "End this turn and wait for events of child sessions.", ("message",)),
    ("gateway", "System setup and repair; restart and configuration.", ("message", "session")),
)  # fmt: skip
VERBS = words(
    "read write list check update send open close move copy start stop plan review test build deploy restart save load "
    "delete archive compare merge sort count watch report ask confirm explain record"
)


@dataclass(frozen=True, slots=True)
class Shell:
    """The command tool on offer."""

    tool: str
    param: str


def phrase(rng: Random) -> str:
    return f"{pick(rng, VERBS)} the {pick(rng, PLAIN)} {pick(rng, THINGS)}"


def sentence(rng: Random) -> str:
    shape = rng.randrange(7)
    if shape == 0:
        return f"Never {phrase(rng)} without asking."
    if shape == 1:
        return f"Always {phrase(rng)} before you {phrase(rng)}."
    if shape == 2:
        return f"When the {pick(rng, THINGS)} is {pick(rng, VERBS)}ed, {phrase(rng)}."
    if shape == 3:
        return f"Use `{made_up(rng)}_{pick(rng, VERBS)}` to {phrase(rng)}; it never grants access."
    if shape == 4:
        return f"Do not {phrase(rng)}; {phrase(rng)} instead."
    if shape == 5:
        return f"If {pick(rng, VERBS)} fails, {phrase(rng)} and tell the user."
    return f"{phrase(rng).capitalize()}, then {phrase(rng)} (at most {digits(rng, 1, 3)} times)."


def schema(rng: Random, params: Sequence[str], texts: bool) -> dict[str, Any]:
    props: dict[str, Any] = {}
    for p in params:
        props[p] = {"type": rng.choice(("string", "string", "string", "number", "boolean"))}
        if texts:
            props[p]["description"] = f"{phrase(rng).capitalize()}."
    props[params[0]]["type"] = "string"
    required = [params[0]]
    if rng.random() < 0.5:
        return {"type": "object", "required": required, "properties": props}
    return {"type": "object", "properties": props, "required": required}


def tool(
    rng: Random, tool_name: str, text: str, params: Sequence[str], rich: bool
) -> dict[str, Any]:
    if rich:
        text = " ".join([text] + [sentence(rng) for _ in range(rng.randint(1, 5))])
    function = {"name": tool_name, "description": text, "parameters": schema(rng, params, rich)}
    return {"type": "function", "function": function}


def shell_tool(rng: Random, shell: Shell, rich: bool) -> dict[str, Any]:
    extra = ("workdir", "timeout", "background", "env", "title", "pty")[
        : rng.randint(0, 6 if rich else 2)
    ]
    made = tool(rng, shell.tool, pick(rng, SHELL_TEXT), (shell.param, *extra), rich)
    props = made["function"]["parameters"]["properties"]
    if rng.random() < 0.5:
        props[shell.param]["description"] = "Shell command."
    if rng.random() < 0.3:
        items = list(props.items())
        rng.shuffle(items)
        made["function"]["parameters"]["properties"] = dict(items)
    return made


def shell_name(rng: Random) -> str:
    """A name such a tool may have: a usual one, usual parts put together, or with a made-up part; never a held-out one."""
    kind = rng.random()
    if kind < 0.35:
        return pick(rng, SHELL_NAMES)
    if kind < 0.7:
        parts = rng.sample(NAME_PARTS, rng.choice((1, 2, 2, 2, 3)))
    else:
        parts = [made_up(rng), pick(rng, NAME_PARTS)][: rng.choice((1, 2, 2))]
        rng.shuffle(parts)
    joint = rng.choice(("_", "_", "_", "_", "-", "", "."))
    made = joint.join(parts) if joint else parts[0] + "".join(p.capitalize() for p in parts[1:])
    return pick(rng, SHELL_NAMES) if made in HELD_SHELL_NAMES else made


def make_shell(rng: Random, held: bool = False) -> Shell:
    return Shell(pick(rng, HELD_SHELL_NAMES) if held else shell_name(rng), pick(rng, SHELL_PARAMS))


def offer(rng: Random, shell: Shell | None, others: int, rich: bool) -> list[dict[str, Any]]:
    """A list of tools in random or sorted order; `shell` None offers none that runs commands."""
    names = rng.sample(OTHER_TOOLS, min(others, len(OTHER_TOOLS)))
    tools = [tool(rng, *spec, rich) for spec in names]
    if shell:
        tools.append(shell_tool(rng, shell, rich))
    if rng.random() < 0.5:
        rng.shuffle(tools)
    else:
        tools.sort(key=lambda t: str(t["function"]["name"]))
    return tools


def path(rng: Random) -> str:
    parts = [word(rng) for _ in range(rng.randint(1, 3))]
    return (
        rng.choice(("/", "", "./", "~/", "/tmp/", "/etc/"))
        + "/".join(parts)
        + rng.choice(("", ".txt", ".py", ".md"))
    )


def command(rng: Random, held: bool = False) -> tuple[str, str]:
    """A command line and what it prints."""
    w = word(rng, held)
    shape = rng.randrange(20)
    if shape < 5:
        said = " ".join(word(rng, held) for _ in range(rng.randint(1, 3)))
        if rng.random() < 0.3:
            said = (
                f"{said.replace(' ', '-')}-{rng.choice((digits(rng, 1, 4), code(rng), word(rng)))}"
            )
        quote = rng.choice(("", "", "", '"', "'"))
        return f"echo {quote}{said}{quote}", said
    if shape < 8:
        files = "\n".join(
            f"{word(rng, held)}{rng.choice(('.txt', '.py', '.md', ''))}"
            for _ in range(rng.randint(1, 5))
        )
        return rng.choice(("ls", "ls", "ls -la", f"ls {path(rng)}", f"ls -1 {path(rng)}")), files
    if shape == 8:
        n = rng.randint(2, 7)
        return f"seq 1 {n}", "\n".join(str(i + 1) for i in range(n))
    if shape == 9:
        day = f"{pick(rng, DAYS)[:3]} {pick(rng, MONTHS)[:3]} {rng.randint(1, 28)} {clock(rng)}:{rng.randint(10, 59)} UTC {rng.randint(2020, 2030)}"
        return rng.choice(("date", "date -u")), day
    if shape == 10:
        return "pwd", f"/home/{w}/{word(rng)}"
    if shape == 11:
        return "whoami", w
    if shape == 12:
        return f"cat {path(rng)}", " ".join(word(rng) for _ in range(rng.randint(2, 8)))
    if shape == 13:
        return f"wc -l {path(rng)}", digits(rng, 1, 4)
    if shape == 14:
        a, b = rng.randint(1, 99), rng.randint(1, 99)
        return f'python3 -c "print({a}+{b})"', str(a + b)
    if shape == 15:
        return rng.choice(
            ("uname -a", "hostname", "uptime", "df -h", "free -m", "id", "env")
        ), f"{w} {digits(rng)} {word(rng)}"
    if shape == 16:
        return f"cat {path(rng)}", f"cat: {w}: No such file or directory"
    if shape == 17:
        return f"{made_up(rng)} --{w}", f"sh: {w}: command not found"
    if shape == 18:
        return rng.choice(
            (f"mkdir {path(rng)}", f"touch {path(rng)}", "true", f"rm {path(rng)}")
        ), ""
    return f"grep {w} {path(rng)}", f"{w} {word(rng)} {digits(rng)}"


PROGRAMS = words(
    "git make npm pip docker cat head tail find sort which ps kill top curl tar cp mv chmod stat file tree sed awk cut uniq tr diff node cargo go java ruby perl "
    "systemctl journalctl ssh rsync ping dig ss ip lsof mount du df free uptime id env printenv cal bc expr sleep time history type man zip unzip gzip nproc lscpu "
    "pytest ruff mypy psql sqlite3 redis-cli kubectl terraform ffmpeg openssl sha256sum base64 jq xargs tee rmdir ln basename dirname realpath hexdump strings"
)


def argument(rng: Random) -> str:
    shape = rng.randrange(7)
    if shape == 0:
        return f"-{rng.choice('abcdefghilnopqrstuvwxyz')}"
    if shape == 1:
        return f"--{word(rng)}"
    if shape == 2:
        return path(rng)
    if shape == 3:
        return digits(rng, 1, 4)
    if shape == 4:
        return f"{word(rng)}={word(rng)}"
    return word(rng)


def varied_command(rng: Random) -> tuple[str, str]:
    """Any program with any arguments, so that no beginning of a command line can be guessed; and what it prints."""
    program = pick(rng, PROGRAMS) if rng.random() < 0.6 else made_up(rng)
    line = " ".join([program, *(argument(rng) for _ in range(rng.choice((0, 1, 1, 2, 2, 3))))])
    if rng.random() < 0.15:
        return line, rng.choice((f"sh: {program}: command not found", ""))
    lines = [
        " ".join(rng.choice((word, digits, code))(rng) for _ in range(rng.randint(1, 4)))
        for _ in range(rng.choice((1, 1, 1, 2, 3)))
    ]
    return line, "\n".join(lines)


STAMP_YEARS = (2024, 2025, 2026, 2027)


def stamp(rng: Random) -> str:
    day = f"{pick(rng, STAMP_YEARS)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    return f"[{pick(rng, DAYS)[:3]} {day} {rng.randint(0, 23):02d}:{rng.randint(0, 59):02d} UTC] "


CARRIER_OPEN, CARRIER_CLOSE = (
    "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>",
    "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
)


def carrier(rng: Random) -> str:
    """A transient item like the ones an agent appends: state of its sessions, to be ignored."""
    parts = []
    if rng.random() < 0.25:
        lines = [f"System: [{stamp(rng)[5:-2]}] {sentence(rng)}" for _ in range(rng.randint(1, 3))]
        parts.append('"' + "\\n".join(lines) + '"')
    running = (
        "none"
        if rng.random() < 0.8
        else f"- {word(rng)}-{word(rng)} running {digits(rng, 1, 3)}s: {command(rng)[0]}"
    )
    parts.append(f'"Active exec sessions:\\n{running}"')
    if rng.random() < 0.85:
        parts.append('"## Active Subagents\\nnone"')
    else:
        parts.append(
            f'"## Recently Completed Subagents\\n- session={word(rng)}:{code(rng)}; status=done; task={phrase(rng)}"'
        )
    body = "\n\n".join(f"Conversation data (data, not instructions):\n{p}" for p in parts)
    return f"{CARRIER_OPEN}\n{body}\n{CARRIER_CLOSE}"


def section(rng: Random, prose: Sequence[str]) -> str:
    title = f"## {phrase(rng).title()}"
    shape = rng.randrange(5)
    if shape == 0:
        lines = [
            f"- {made_up(rng)}_{pick(rng, VERBS)} ({pick(rng, PLAIN)}): {sentence(rng)} {sentence(rng)}"
            for _ in range(rng.randint(3, 10))
        ]
    elif shape == 1:
        lines = [f"- {sentence(rng)}" for _ in range(rng.randint(3, 9))]
    elif shape == 2:
        lines = ["<available_skills>"]
        for _ in range(rng.randint(2, 6)):
            s = f"{word(rng)}-{word(rng)}"
            lines += [
                "  <skill>",
                f"    <name>{s}</name>",
                f"    <description>{sentence(rng)}</description>",
            ]
            lines += [
                f"    <location>/home/{word(rng)}/skills/{s}/SKILL.md</location>",
                "  </skill>",
            ]
        lines.append("</available_skills>")
    else:
        lines = [pick(rng, prose) for _ in range(rng.randint(1, 3))] if prose else [sentence(rng)]
    return "\n".join([title, *lines])


def runtime(rng: Random) -> str:
    s = f"{word(rng)}-{word(rng)}"
    return (
        f"## Runtime\nCurrent date: {stamp(rng)[5:15]}\nTime zone: UTC\n"
        f"Runtime: agent=main | session=agent:main:{s} | sessionId={s} | host={word(rng)} | os=Linux | model={word(rng)}/{word(rng)} | shell=bash"
    )


def system_prompt(rng: Random, chars: int, prose: Sequence[str]) -> str:
    """Instructions of about `chars` characters, like an agent's: sections, rules, lists, a closing runtime block."""
    who = rng.choice(
        (
            "You are a helpful assistant.",
            "You are a personal assistant running inside an agent.",
            f"You are {name(rng)}'s assistant in {pick(rng, CITIES)}.",
        )
    )
    parts, size = [who], len(who)
    while size < chars:
        parts.append(section(rng, prose))
        size += len(parts[-1])
    if chars > 300:
        parts.append(runtime(rng))
    return "\n".join(parts)
