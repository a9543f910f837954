"""The interface document (OpenAPI 3.1) and the page made of it: what a developer reads to build against the vault.

``operations.OPERATIONS`` says which operations there are, with their paths, parameters and statuses; the files here say what they
mean, one table for each subject (``models``, ``files``, ``schemas``, ``clients``). ``assemble`` makes one document of both,
and ``page`` a page for people. Every example is sent by a test, and answers as it says.

What it may touch: nothing but data; no request, no vault.
"""
