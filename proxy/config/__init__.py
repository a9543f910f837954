"""Settings: one YAML file and the environment in, one frozen ``Settings`` out, or every fault at once.

Why it exists: a typing error in a settings file must never quietly mean the default. So each setting stands in one table
(``table.SETTINGS``: default, how it is read, what to write, what it means), whatever is not in the table is refused
with the nearest name that is, and all faults are told together, each with file, line and column.

``values`` reads one text, ``document`` finds the texts in a YAML file, ``environment`` those in the environment,
``load`` joins them (environment before file before default) and checks what concerns two settings, ``settings`` is
what the rest of the program sees.

What it may touch: the one settings file and the environment it is handed. It connects to nothing and creates nothing;
whether a store can be opened or a key read is for the rooms that do it.
"""

from proxy.config.load import DEFAULT_FILE, load_settings
from proxy.config.settings import (
    FirewallSettings,
    Forwarding,
    KeySettings,
    Listen,
    ListenAddress,
    Log,
    NetworkSetting,
    Pending,
    Settings,
    StoreSettings,
    UpstreamSettings,
)

__all__ = [
    "DEFAULT_FILE",
    "FirewallSettings",
    "Forwarding",
    "KeySettings",
    "Listen",
    "ListenAddress",
    "Log",
    "NetworkSetting",
    "Pending",
    "Settings",
    "StoreSettings",
    "UpstreamSettings",
    "load_settings",
]
