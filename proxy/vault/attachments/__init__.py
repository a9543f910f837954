"""Attachments of records: metadata, encrypted content, and the cleanup of objects that no record
names.

Its face is what stands here.
"""

from proxy.vault.attachment_content import Contents
from proxy.vault.attachments.object_cleanup import (
    PAIR_NOTE,
    belong_to_a_vault,
    check_pair,
    named_objects,
)
from proxy.vault.attachments.service import (
    Download,
    IncomingFile,
    Owner,
    Then,
    attachment_label,
    change,
    download,
    move,
    remove_attachment,
    replace_attachment_of,
    upload,
)
from proxy.vault.records.attachment_metadata import Label

__all__ = [
    "PAIR_NOTE", "Contents", "Download", "IncomingFile", "Label", "Owner", "Then",
    "attachment_label", "belong_to_a_vault", "change", "check_pair", "download", "move",
    "named_objects", "remove_attachment", "replace_attachment_of", "upload",
]  # fmt: skip
