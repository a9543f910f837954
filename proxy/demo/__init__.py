"""The sample application and the two-view page of ``domicile demo``.

``contacts`` is an ordinary application that knows nothing of proxies and tokens and checks its
input as ordinary applications do; ``two_views`` shows its store beside what the proxy restores. It
may touch aiohttp and a JSON file of its own, nothing else. Face: ``contacts``, ``store``,
``two_views``.
"""
