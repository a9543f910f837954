"""Records that the proxy collects: staged writes, tokens back to values, reconciliation.

Its face is what stands here; other rooms import nothing else of it.
"""

from proxy.vault.next_version import NO_COVER, Cover, ProxiedDraft
from proxy.vault.proxied.anywhere import SentTokens, carries_record, own, reveal_anywhere, stand_ins
from proxy.vault.proxied.binding import (
    StagedWrite,
    accept,
    binding_of,
    end_unknown,
    ended_unknown,
    forget_staged,
    insert_at_once,
    is_large,
)
from proxy.vault.proxied.correction import correct_record, refuse_changed
from proxy.vault.proxied.deletes import (
    deleted,
    deleted_unknown,
    promised,
    reconcile_absent,
    reconcile_gone,
    stage_behind,
)
from proxy.vault.proxied.filling import Filling
from proxy.vault.proxied.hosted import Hosted
from proxy.vault.proxied.merge_duplicates import keep
from proxy.vault.proxied.naming import Displacement, bind
from proxy.vault.proxied.open_rows import (
    AnswerObject,
    OpenRow,
    PageRun,
    Revealed,
    open_as_shown,
    open_page,
    open_with_staged,
)
from proxy.vault.proxied.page_settlement import settle_page
from proxy.vault.proxied.promotion import promotion_of, undecided, update_at_once
from proxy.vault.proxied.reconcile import reconcile_objects
from proxy.vault.proxied.reveal import REVEAL_SLICE, reveal_objects, reveal_others
from proxy.vault.proxied.staging import drop_staged, promote
from proxy.vault.proxied.token_entries import unneeded
from proxy.vault.table_state import PageRecord

__all__ = [
    "NO_COVER",
    "REVEAL_SLICE",
    "AnswerObject",
    "Cover",
    "Displacement",
    "Filling",
    "Hosted",
    "OpenRow",
    "PageRecord",
    "PageRun",
    "ProxiedDraft",
    "Revealed",
    "SentTokens",
    "StagedWrite",
    "accept",
    "bind",
    "binding_of",
    "carries_record",
    "correct_record",
    "deleted",
    "deleted_unknown",
    "drop_staged",
    "end_unknown",
    "ended_unknown",
    "forget_staged",
    "insert_at_once",
    "is_large",
    "keep",
    "open_as_shown",
    "open_page",
    "open_with_staged",
    "own",
    "promised",
    "promote",
    "promotion_of",
    "reconcile_absent",
    "reconcile_gone",
    "reconcile_objects",
    "refuse_changed",
    "reveal_anywhere",
    "reveal_objects",
    "reveal_others",
    "settle_page",
    "stage_behind",
    "stand_ins",
    "undecided",
    "unneeded",
    "update_at_once",
]
