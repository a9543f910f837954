"""HTTP/1.1 and 1.0 as bytes: one codec without I/O for callers' requests and applications' answers.

``fields`` is the grammar of header fields, ``head`` reads heads and settles the framing, ``body``
reads chunks and queues pieces, ``reader`` cuts the bytes of a connection into messages. Strictly
read bytes pass unchanged. It touches no socket and no timer.
"""
