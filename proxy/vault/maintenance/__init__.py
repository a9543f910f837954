"""Background work on stored data: expiry, verification, re-encryption, key usage, rehash."""
