"""The use cases on records: stage and settle for the proxy, write and find for the interface.

Above are clear records, below sealed rows. ``seal`` is the barrier where clear text and keys meet.
A write of the proxy has two steps, each one durable transaction (``proxied``); records of the
interface come and go by one commit each (``records``). ``collection`` is the table of a schema,
``vault`` an environment with its keys, ``schemas`` its catalogue and migrations, ``attachments``
its files, ``maintenance`` what runs in the background. It knows no HTTP and no rule file.
"""
