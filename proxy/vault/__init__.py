"""The use cases on records: stage and settle for the proxy, write and find for the interface.

Above are clear records, below sealed rows. ``seal`` is the barrier where clear text and keys meet.
A write of the proxy has two steps, each one durable transaction (``proxied``); records of the
interface come and go by one commit each (``records``). It knows no HTTP and no rule file. Face:
``vault`` (an environment with its keys), ``environments``, ``collection`` (the table of a schema),
``records``, ``proxied``, ``schemas`` (catalogue and migrations), ``attachments``, ``maintenance``
(what runs in the background), ``idempotency``, ``body``.
"""
