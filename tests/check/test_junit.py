"""JUnit reports of ``check``: one in full, and the schema that CI servers check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from check.test_views import MIXED, report
from golden import matches

from distdemo.check.junit import junit_xml

HERE = Path(__file__).parent
NASTY = "\u202e\x00\x1b[31mred\x1b[0m]]><a>&\"'\ud800\udc00\udcff\ufffe\uffffa\r\nb"


def test_a_report_of_every_status_is_valid_whatever_a_rank_said() -> None:
    """The schema is that of Jenkins' xunit plugin, the strictest reader."""
    xmlschema = pytest.importorskip("xmlschema")
    schema = xmlschema.XMLSchema(HERE.parent / "schemas" / "junit-10.xsd")
    assert not schema.is_valid("<testsuites><testsuite name='no counts'/></testsuites>")
    nasty = [replace(case, why=NASTY, details=(NASTY,)) for case in MIXED.cases]
    for made in (MIXED, report(), replace(MIXED, cases=tuple(nasty))):
        schema.validate(junit_xml(made))
        assert not {"\x1b", "\u202e"} & {*junit_xml(made)}
    matches(HERE / "golden" / "junit.xml", junit_xml(MIXED))
