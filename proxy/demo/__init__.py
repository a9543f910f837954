"""The sample application and the two-view page of ``domicile demo``.

``contacts`` is an ordinary application without knowledge of proxies and tokens, which validates its
input; ``two_views`` shows its store next to the restored page. It may touch aiohttp and its JSON
file, nothing else. Face: ``contacts``, ``store``, ``two_views``.
"""
