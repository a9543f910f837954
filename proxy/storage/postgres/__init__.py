"""The PostgreSQL engine, for vaults that outgrow one machine: asyncpg, and nothing of its own
beside.

``address`` reads the setting; ``link`` connects and owns the vault, and ``faults`` tells what
broke; ``migrations`` and ``tables`` make what is kept, ``statements`` holds the SQL on it;
``batch`` and ``writer`` make groups of commits durable; ``where`` and ``select`` answer questions;
``store`` joins them to the port. It is imported only where the setting ``store`` names it.
"""
