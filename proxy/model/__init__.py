"""The nouns: schemas, fields, records, filters, policies. Data without I/O and without keys.

Face: what stands here (parsers of requests, schemas, policies and templates), and the types in
``schema``, ``record``, ``query``, ``policy``, ``rights`` and ``values``, which collects faults.
"""

from proxy.model.filter_language import NOT, field_of, steps_of
from proxy.model.filter_reader import read_aggregate, read_filter, read_find
from proxy.model.legacy_dialect import (
    ALIASES,
    COUNTRY,
    field_of_name,
    parse_legacy_record,
    read_record_aggregate,
    read_record_filter,
    read_record_find,
    read_records,
)
from proxy.model.policy_reader import read_policy
from proxy.model.record_reader import read_draft, read_drafts, read_texts
from proxy.model.schema_change import (
    ChangeStep,
    Conversion,
    SchemaChangePlan,
    conformed,
    length_of,
    planned,
)
from proxy.model.schema_document import read_definition, schema_warnings, write_definition
from proxy.model.template import TemplateGroup, can_produce, capacity, fill, read_template

__all__ = [
    "ALIASES", "COUNTRY", "NOT", "ChangeStep", "Conversion", "SchemaChangePlan", "TemplateGroup",
    "can_produce", "capacity", "conformed", "field_of", "field_of_name", "fill", "length_of",
    "parse_legacy_record", "planned", "read_aggregate", "read_definition", "read_draft",
    "read_drafts", "read_filter", "read_find", "read_policy", "read_record_aggregate",
    "read_record_filter", "read_record_find", "read_records", "read_template", "read_texts",
    "schema_warnings", "steps_of", "write_definition",
]  # fmt: skip
