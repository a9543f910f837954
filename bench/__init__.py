"""Benchmarks against peers: ``make bench``, or ``python -m bench [measure …] [--quick] [--write]``.

Why it exists: a claim about speed is worth what its peer is worth. Every figure here is a ratio
between two programs that ran in turns on the same machine in the same minutes; absolute figures say
more about the machine than about us.

How it is built. ``measures.py`` lists the measures with what each must, should and could reach, and
which module takes it. Each such module has

    def run(quick: bool = False) -> dict[str, Any]

which answers ``{"rows": [row, …], "notes": [sentence, …]}`` with one row per case::

    {
        "measure": 7,
        "case": "100 KB",
        "unit": "us",
        "ours": 91.0,
        "peer": 1867.0,
        "against": "json.loads + dumps",
        "ratio": 20.5,
    }

``ratio`` is the figure that is held against the goals of its measure, in the direction
``measures.py`` states; ``ours``, ``peer`` and ``ratio`` are ``None`` where they could not be taken,
and a note then says why. ``quick`` asks for a run of a few seconds at most, which shows that the
harness works and says nothing about speed.

Processes. Proxies, the application behind them and the load are processes of their own on free
ports of 127.0.0.1, started and stopped by ``processes.py``; where the machine has two cores or
more, the proxy under test has one for itself. ``peers.py`` finds or installs nginx and mitmproxy,
``ours.py`` starts ``domicile serve``, ``upstream_app.py`` is the application, ``load.py`` the load
with the requests of ``scenarios.py``, ``rounds.py`` runs two proxies in turns, ``exactness.py``
compares bytes, ``machine.py`` describes the machine, ``report.py`` writes the table.

Nothing in ``proxy/`` imports this package, and only the modules that time one room from inside
import ``proxy``.
"""
