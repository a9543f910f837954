"""The PostgreSQL engine, for vaults that outgrow one machine: asyncpg, and no other library.

``address`` reads the setting; ``link`` connects and owns the vault, and ``faults`` classifies
errors; ``replicas`` and ``replica_messages`` join several instances; ``migrations`` and ``tables``
create the tables, ``statements`` holds the SQL; ``writer`` makes groups of commits durable;
``select`` runs queries; ``store`` joins them to the port. It is imported only if the setting
``store`` names it.
"""
