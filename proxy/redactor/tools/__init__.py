"""Tools for those who write rules: learn, explain, compare and prove them, adopt an application.

No request goes through here. Functions on rules and observations, without I/O; commands, console
and ``exchange`` call them.
"""
