"""Settings: one YAML file and the environment in, one frozen ``Settings`` out, or every fault at
once.

A misspelt setting must never silently mean the default. Each setting stands in one table
(``schema``), an unknown name is refused with the nearest known one, and all faults are reported
together with file, line and column. The environment overrides the file, the file the default. It
connects to nothing and creates nothing. Face: what stands here (``load_settings`` and the types),
``parsers``, ``declarations`` (schemas and policies as files), ``schema``.
"""

from proxy.config.load import DEFAULT_FILE, load_settings
from proxy.config.settings import (
    FileSettings,
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
    Worker,
    embedded_files,
    embedded_store,
)

__all__ = [
    "DEFAULT_FILE", "FileSettings", "FirewallSettings", "Forwarding", "KeySettings", "Listen",
    "ListenAddress", "Log", "NetworkSetting", "Pending", "Settings", "StoreSettings",
    "UpstreamSettings", "Worker", "embedded_files", "embedded_store", "load_settings",
]  # fmt: skip
