"""Use cases on records of the interface: query, find, aggregate, create, update, delete, history.

Its face is what stands here; other rooms import nothing else of it.
"""

from proxy.vault.records.aggregate import AggregateRow, aggregate_groups
from proxy.vault.records.commit import no_changes, refuse_of_rules
from proxy.vault.records.create import store_records
from proxy.vault.records.delete import delete_many, delete_one
from proxy.vault.records.export_pages import export
from proxy.vault.records.find import FoundPage, PageAsker, Render, find_page, page_of, record_of_key
from proxy.vault.records.history import history_page
from proxy.vault.records.merge import merge_records
from proxy.vault.records.person import (
    DeletedRecords,
    PersonRecord,
    PersonValues,
    find_person_records,
    found_in_doubt,
)
from proxy.vault.records.prompt import page_at_once, question_of, record_at_once
from proxy.vault.records.query import cursor_context, open_cursor
from proxy.vault.records.repository import Records
from proxy.vault.records.update import change_records, clone
from proxy.vault.records.visibility import all_visible

__all__ = [
    "AggregateRow",
    "DeletedRecords",
    "FoundPage",
    "PageAsker",
    "PersonRecord",
    "PersonValues",
    "Records",
    "Render",
    "aggregate_groups",
    "all_visible",
    "change_records",
    "clone",
    "cursor_context",
    "delete_many",
    "delete_one",
    "export",
    "find_page",
    "find_person_records",
    "found_in_doubt",
    "history_page",
    "merge_records",
    "no_changes",
    "open_cursor",
    "page_at_once",
    "page_of",
    "question_of",
    "record_at_once",
    "record_of_key",
    "refuse_of_rules",
    "store_records",
]  # fmt: skip
