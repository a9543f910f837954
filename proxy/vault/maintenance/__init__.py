"""Background work on stored data: verification, re-encryption, key usage, rehash.

Its face is what stands here; other rooms import nothing else of it.
"""

from proxy.vault.expiry import pending
from proxy.vault.maintenance.hash_rotation import HashRotation, HashRotationRun
from proxy.vault.maintenance.key_rotation import (
    drop_hash_root,
    drop_keys,
    follow_keyset,
    next_keyset_note,
    prepare_next,
    renew_hash_root,
    renew_keys,
    renew_token_root,
    rewrap,
    wait_running,
    wrapper,
)
from proxy.vault.maintenance.key_usage import scan_key_usage
from proxy.vault.maintenance.reencryption import ReencryptionJob, ReencryptionRun
from proxy.vault.maintenance.rehash import (
    Rehash,
    RehashedRecord,
    newest_tokens,
    rehash_profiles,
    resolve_rehashed,
)
from proxy.vault.maintenance.rehash_job import RehashJob, RehashRequest, RehashRun, open_job
from proxy.vault.maintenance.rehash_rules import ALL_OTHERS, RehashRules, read_dtk, read_rules
from proxy.vault.maintenance.verify import VaultFault, VaultFindings, extent, verify_vault
from proxy.vault.replicas import Agreeing, agreeing, is_alone

__all__ = [
    "ALL_OTHERS", "Agreeing", "HashRotation", "HashRotationRun", "ReencryptionJob",
    "ReencryptionRun", "Rehash", "RehashJob", "RehashRequest", "RehashRules", "RehashRun",
    "RehashedRecord", "VaultFault", "VaultFindings", "agreeing", "drop_hash_root", "drop_keys",
    "extent", "follow_keyset", "is_alone", "newest_tokens", "next_keyset_note", "open_job",
    "pending", "prepare_next", "read_dtk", "read_rules", "rehash_profiles", "renew_hash_root",
    "renew_keys", "renew_token_root", "resolve_rehashed", "rewrap", "scan_key_usage",
    "verify_vault", "wait_running", "wrapper",
]  # fmt: skip
