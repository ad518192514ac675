"""The schema that is handed out is that of the reports that are written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from recon_core.auditing.report import AuditReport

PROJECT = Path(__file__).parents[2]


def test_schema_in_the_docs_is_that_of_the_report() -> None:
    schema = json.loads((PROJECT / "docs" / "audit.schema.json").read_text())
    assert schema == AuditReport.model_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
