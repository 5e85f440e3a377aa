"""The schema of what --json prints, made from the annotations of the results.

A changed field shows as a change of the shipped file. To renew it:

    python tests/test_schema.py
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from torch import Tensor

from steincritic.cli import COMMANDS
from steincritic.cli.guard import SCHEMA_VERSION
from steincritic.diagnosis.comparison import Comparison
from steincritic.diagnosis.doctor import doctor
from steincritic.diagnosis.findings import Finding
from steincritic.diagnosis.regions import Region
from steincritic.gof.result import Caveat, GofResult, Reading, Tolerated

SHIPPED = files("steincritic") / "schema" / f"output-{SCHEMA_VERSION}.json"
NAMED = {Caveat: "caveat", Tolerated: "tolerance", doctor.Finding: "finding_about_the_model", Finding: "seen"}
NAMED |= {Reading: "reading"}
TYPES = {float: "number", int: "integer", str: "string", bool: "boolean", NoneType: "null"}
PROBABILITIES = {"pvalue", "any_right_pvalue", "level", "fdr", "spent", "fisher_confidence"}
REGION = {"rule": str, "conditions": list[tuple[str, Literal["<=", ">"], float]]}
COORDINATE = {"name": str, "share": float, "z": float, "pvalue": float}
FLAGGED = {"flagged": list[int], "fdr": float, "worst": list[int]}
CHECKED = {
    **{"size": str, "fisher_lower_bound": float, "fisher_estimate": float, "fisher_confidence": float},
    **{"seen": tuple[Finding, ...], "findings": list[str]},
    **{"rows": int, "columns": list[str]},
}
LARGEST = {"row": int, "witness": float}
LARGEST_WHERE_KNOWN = {"line": int, "id": str, "pvalue": float, "columns": str}
ABOUT = {"model": str, "data": str, "dropped": int}
DIFFERENCES = dict.fromkeys(("differences", "differences_lower", "differences_upper"), list[list[float]])
WITNESSED = {"critic": str, "rows": int, "mean": float | None, "standard_error": float | None}
COMPARED = {"models": list[str], "data": str, "dropped": int, "tests": list[str] | None, "summary": str}
FILES = {"files": list[str]}
WATCHED = {
    **{"points": int, "batches": int, "wealth": float, "log_wealth": float, "threshold": float},
    **{"pvalue": float, "rejected": bool, "rejected_at": int | None},
}
OWN = {  # of each command: required fields, and others
    "check": (ABOUT, FILES),
    "test": (ABOUT, {}),
    "doctor": (ABOUT | {"data": str | None}, {}),
    "compare": (COMPARED | DIFFERENCES, {}),
    "watch": (ABOUT | WATCHED, {}),
    "witness": (ABOUT | WITNESSED, {}),
    "demo": ({}, {}),
}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def of_type(hint: Any) -> dict[str, Any]:
    """The schema of a value by its annotation."""
    kind, parts = get_origin(hint), get_args(hint)
    if hint in NAMED:
        return ref(NAMED[hint])
    if hint in TYPES:
        return {"type": TYPES[hint]}
    if hint is Tensor:
        return of_type(list[float])
    if kind is Literal:
        return {"enum": list(parts)}
    if kind is UnionType:
        return {"anyOf": [of_type(part) for part in parts]}
    if kind is Mapping:
        return {"type": "object"}
    assert kind in (list, tuple), hint
    if kind is list or parts[-1] is Ellipsis:
        return {"type": "array", "items": of_type(parts[0])}
    return {
        "type": "array",
        "prefixItems": [*map(of_type, parts)],
        "minItems": len(parts),
        "maxItems": len(parts),
    }


def field(name: str, hint: Any) -> dict[str, Any]:
    if name in PROBABILITIES and hint is float:
        return ref("probability")
    return of_type(hint)


def record(required: Mapping[str, Any], others: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An object by the types of its fields, or by their schemas."""
    every = {**required, **(others or {})}
    made = {name: hint if isinstance(hint, dict) else field(name, hint) for name, hint in every.items()}
    return {"type": "object", "required": list(required), "properties": made}


def annotated(kind: type, names: tuple[str, ...]) -> dict[str, Any]:
    """The types of fields and properties of a class."""
    hints = get_type_hints(kind)
    found = (vars(kind).get(name) for name in names)
    return {
        name: get_type_hints(value.fget)["return"] if isinstance(value, property) else hints[name]
        for name, value in zip(names, found, strict=True)
    }


def command(name: str) -> dict[str, Any]:
    required, others = OWN[name]
    if name in ("check", "test"):
        tested = {"$ref": "#/$defs/test", **record(required, others)}
        few = {"anyOf": [ref("checked"), {"not": {"required": ["findings"]}}]}  # too few rows to search
        return tested | (few if name == "check" else {})
    if name == "demo":
        case = {"allOf": [ref("test"), ref("checked"), record(FILES)]}
        return record({**required, "cases": {"type": "object", "additionalProperties": case}})
    if name == "witness":
        largest = {"type": "array", "items": record(LARGEST, LARGEST_WHERE_KNOWN)}
        return record({**required, "largest": largest})
    result = {"doctor": doctor.Checkup, "compare": Comparison}.get(name)
    return record({**required, **({} if result is None else annotated(result, result.JSON_FIELDS))})


def schema() -> dict[str, Any]:
    points = record(FLAGGED, {"worst_lines": list[int], "worst_ids": list[str]})
    missing = record({"flagged": int, "of": int, "fdr": float}) | {"type": ["object", "null"]}
    lists = {"regions": ref("region"), "coordinates": record(COORDINATE)}
    lists = {name: {"type": "array", "items": item} for name, item in lists.items()}
    each = [
        {"if": {"properties": {"command": {"const": name}}}, "then": ref(f"command-{name}")}
        for name in COMMANDS
    ]
    context = {
        "versions": record(dict.fromkeys(("steincritic", "torch", "python"), str)),
        "command": Literal[*COMMANDS],
        "seconds": float,
    }
    problems = {"model_problems": tuple[doctor.Finding, ...]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:steincritic:output-{SCHEMA_VERSION}.json",
        "title": "What steincritic COMMAND --json prints",
        "description": "One object per command; `watch` prints one per batch. An error after the result "
        "comes with the result. Fields may be added within a version; the version counts up when a field "
        "changes its meaning or goes.",
        "type": "object",
        "required": ["schema_version"],
        "properties": {"schema_version": {"const": SCHEMA_VERSION}, "error": ref("error")},
        "if": {"required": ["error"]},
        "else": ref("answer"),
        "$defs": {
            "answer": record(context) | {"allOf": each},
            "probability": {"type": "number", "minimum": 0, "maximum": 1},
            "error": record({"type": str, "message": str}),
            **{NAMED[kind]: record(get_type_hints(kind)) for kind in NAMED},
            "region": record({**REGION, **annotated(Region, Region.JSON_FIELDS)}),
            "test": record(annotated(GofResult, GofResult.JSON_FIELDS), problems),
            "checked": record({**CHECKED, "points": points, "missing": missing, **lists}),
            **{f"command-{name}": command(name) for name in COMMANDS},
        },
    }


def text() -> str:
    return json.dumps(schema(), indent=1) + "\n"


def test_the_schema_that_is_shipped_is_that_of_the_results():
    assert SHIPPED.read_text("utf-8") == text(), "renew it with python tests/test_schema.py"


if __name__ == "__main__":
    SHIPPED.write_text(text(), "utf-8")
