"""Resident functions: code of the operator that runs beside the vault and returns only JSON.

Packages declare functions in the entry point group ``domicile.functions``. Every call runs in its
own process with limits on memory and time. The kernel keeps it from files, processes and the
network (``sandbox``); it has no keys, open files or environment variables of the service. It
reaches the vault only through its ``handle``, with the rights of the caller. The room may touch
processes and pipes. It knows no HTTP and no vault. Face: ``runner``, ``sandbox``.
"""
