"""Attachments of records: metadata, encrypted content, and the sweep of objects that no record
names.

Its face is what stands here, and the use cases in ``service``.
"""

from proxy.vault.attachment_content import Contents
from proxy.vault.attachments.service import Download, IncomingFile, Owner, Then
from proxy.vault.attachments.sweep import PAIR_NOTE, check_pair, named_objects
from proxy.vault.records.attachment_metadata import Label

__all__ = [
    "PAIR_NOTE",
    "Contents",
    "Download",
    "IncomingFile",
    "Label",
    "Owner",
    "Then",
    "check_pair",
    "named_objects",
]
