"""The contacts application and the two-view page behind ``domicile demo``.

Why it exists: a newcomer should see the product's one claim with their own eyes within a minute. So there is
an ordinary application to protect, and a page that shows both sides of it at once.

``contacts`` (with ``store``, ``validation``, ``pages``) is that application. It knows nothing of proxies,
tokens or vaults, and checks its input as ordinary applications do: it is the proof that tokens pass such
checks. Keep it that way; whatever it needs to know about Domicile would be a fault of the proxy.

``twoviews`` is the page. It reads the application's store directly, and the same records through the proxy:
where the two differ, a token stands. It therefore needs no access to rules, keys or the vault.

``samples`` puts a few invented people into an empty application, through the proxy.

May touch: aiohttp, a JSON file of its own, ``errors``. Must not touch the redactor, the vault or any store of
theirs.
"""
