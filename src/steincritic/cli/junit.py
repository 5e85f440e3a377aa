"""A verdict as JUnit XML, which CI servers show: one case, which fails if the model is rejected."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

from steincritic.cli.streams import shown

_PROPERTIES = ("model", "data", "pvalue", "level", "test", "n", "seed")


def junit(lines: Sequence[str], content: Mapping[str, Any], *, title: str) -> bytes:
    """The XML of a check.

    Args:
        lines: what a person reads, the verdict first.
        content: the JSON object of the command.
    """
    failed, seconds, text = int(content["rejected"]), f"{content['seconds']:.3f}", shown("\n".join(lines))
    about = {"name": "steincritic", "tests": "1", "failures": str(failed), "errors": "0", "skipped": "0"}
    about |= {"time": seconds, "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")}
    suite = ElementTree.Element("testsuite", about | {"hostname": "localhost"})
    properties = ElementTree.SubElement(suite, "properties")
    for name in _PROPERTIES:
        ElementTree.SubElement(properties, "property", name=name, value=shown(str(content[name])))
    case = ElementTree.SubElement(
        suite, "testcase", classname=f"steincritic.{content['command']}", name=shown(title), time=seconds
    )
    if failed:
        message = text.partition("\n")[0]
        ElementTree.SubElement(case, "failure", message=message, type="rejected").text = text
    ElementTree.SubElement(suite, "system-out").text = text
    ElementTree.SubElement(suite, "system-err")
    ElementTree.indent(suite)
    made: bytes = ElementTree.tostring(suite, encoding="utf-8")
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + made + b"\n"
