"""The way to the application: one narrow port (``port``), one implementation of our own (``client``).

Why it exists: client libraries cost several times what the rest of the proxy costs, re-write header bytes, swallow early
hints and trailers, and hide whether a request went out. Here an exchange is a request written as bytes and an answer read
strictly, kept as bytes.

``head`` and ``chunks`` read answers and refuse what two readers could understand differently; ``connection`` carries
exchanges; ``pool`` keeps connections; ``client`` chooses one, and sends again only what may be sent twice. Time-outs are
numbers compared by one sweeper, not timers.

What it may touch: sockets towards applications. It knows no rule and no vault.
"""
