"""A tool-call argument's text to JSON, by the tool's schema. Knows one value at a time, no call syntax."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

Schema = Mapping[str, Any]

NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
MAX_INTEGER_DIGITS = 400
MAX_REFERENCES = 16
JSON_NAMES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
}


def argument_json(text: str, name: str, parameters: Schema) -> str:
    """`text` as JSON of the type that the schema `parameters` gives argument `name`.

    A value that doesn't fit its type stays the string it is: nothing is refused and nothing is lost. Of several types the
    first that fits wins, in the schema's order (null always comes first). Without a type any JSON but a quoted string is taken.
    """
    for kind in _kinds(_schema_of(name, parameters), parameters):
        converted = _converted(text, kind)
        if converted is not None:
            return converted
    return json.dumps(text, ensure_ascii=False)


def _schema_of(name: str, parameters: Schema) -> Any:
    properties = parameters.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return properties[name]
    return parameters.get("additionalProperties")


def _kinds(schema: Any, root: Schema) -> list[str]:
    kinds = _types(schema, root, MAX_REFERENCES) or ["null", "boolean", "number", "object", "array"]
    return sorted(kinds, key=lambda kind: kind != "null")


def _types(schema: Any, root: Schema, depth: int) -> list[str]:
    """JSON type names that a schema allows, in its order; empty when it says nothing."""
    if not isinstance(schema, Mapping) or depth == 0:
        return []
    if isinstance(schema.get("$ref"), str):
        return _types(_resolve(schema["$ref"], root), root, depth - 1)
    declared = schema.get("type")
    found: list[str] = []
    if isinstance(declared, str):
        found = [declared]
    elif isinstance(declared, list | tuple):
        found = [kind for kind in declared if isinstance(kind, str)]
    else:
        for inner in _alternatives(schema):
            found += _types(inner, root, depth - 1)
        found += [_type_of(value) for value in _fixed_values(schema)]
    return [*found, "null"] if found and schema.get("nullable") is True else found


def _alternatives(schema: Schema) -> list[Any]:
    lists = [schema.get(word) for word in ("anyOf", "oneOf", "allOf")]
    return [inner for each in lists if isinstance(each, list | tuple) for inner in each]


def _fixed_values(schema: Schema) -> list[Any]:
    enum = schema.get("enum")
    values = list(enum) if isinstance(enum, list | tuple) else []
    return [*values, schema["const"]] if "const" in schema else values


def _type_of(value: Any) -> str:
    return JSON_NAMES.get(type(value), "null")


def _resolve(reference: str, root: Schema) -> Any:
    """The schema a local reference (`#/$defs/Name`) names; None for any other."""
    target: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        target = target.get(key) if isinstance(target, Mapping) else None
    return target


def _converted(text: str, kind: str) -> str | None:
    """`text` as JSON of one type, None where it is none or would lose something."""
    bare = text.strip()
    if kind == "string":
        return json.dumps(text, ensure_ascii=False)
    if kind == "null":
        return "null" if bare.lower() in ("null", "none") else None
    if kind == "boolean":
        return bare.lower() if bare.lower() in ("true", "false") else None
    if kind == "integer":
        return _integer(bare)
    if kind == "number":
        return bare if NUMBER.fullmatch(bare) else None
    return bare if _is_json(bare, kind) else None


def _integer(text: str) -> str | None:
    if not NUMBER.fullmatch(text):
        return None
    value = Decimal(text)
    if value.adjusted() > MAX_INTEGER_DIGITS or value != value.to_integral_value():
        return None
    return str(int(value))


def _is_json(text: str, kind: str) -> bool:
    if text[:1] != {"object": "{", "array": "["}.get(kind):
        return False
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
