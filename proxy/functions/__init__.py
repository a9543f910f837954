"""Resident functions: code that the operator installed, run beside the vault, of which only a JSON result leaves.

Why it exists: some answers (a sum over a join, a letter with a name in it) need values in the clear, and the values must not
leave the country for it. So the code comes to the data: Python packages that the operator installs in the instance's own
environment declare functions in the entry point group ``domicile.functions``; a caller names one and gets its result.

How it is bounded: every call runs in a process of its own, with a limit on memory and on time, no key, no open file of the
service and none of its environment variables. All it can do to the vault is ask through its ``handle``, and the service answers
as it would answer the caller's own requests: whoever may not read a record cannot read it through a function either.
What it cannot do: a function is code that the operator chose; nothing here keeps it from opening a network connection of its
own. The network policy of the pod does that.

What it may touch: processes and pipes. It knows no HTTP and no vault: what answers the handle is given to it.

- ``installed`` finds functions; ``runner`` starts processes and talks with them; ``frames`` is how both sides talk.
- ``worker`` is the program of that process, ``handle`` what a function gets there. Both load fast and need little memory.
"""
