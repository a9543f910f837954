"""The composition root: settings in, one running instance out.

``instance`` says in which order things start and end; the other files make its parts (environments,
 keys, network, audit, api) and open a vault that no instance runs on (``offline``). No
other room names a concrete engine. Face: one file for each thing that a command asks for; above all
``instance`` (``prepare_instance``, ``running``), ``rules`` and ``offline``.
"""

from proxy.net.memory_budget import import_aiohttp

import_aiohttp()
