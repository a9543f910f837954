"""Resident functions: code that the operator installed, run beside the vault, of which only a JSON
result leaves.

Packages declare functions in the entry point group ``domicile.functions``. Every call runs in a
process of its own with limits on memory and time, which the kernel keeps from files, processes and
the network (``sandbox``), without keys, open files or environment variables of the service. All it
can do to the vault is ask through its ``handle``, with the rights of the caller. The room may touch
processes and pipes. It knows no HTTP and no vault. Face: ``runner``, ``sandbox``.
"""
