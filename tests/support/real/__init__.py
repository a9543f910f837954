"""Real applications from the package index, with their own client, to stand behind the proxy.

``installed`` puts them into an environment of their own under ``.cache``, at locked versions.
``project`` writes a small Django project and ``site`` runs it; ``kinto`` runs a server of records
with its own client; ``served`` is the WSGI server of both, ``wire`` records every byte on its way
to them. ``client`` steers httpx, which runs in that environment too, ``pages`` reads a page's form
as a browser would, ``inside`` looks into the proxy's vault and log.
"""
