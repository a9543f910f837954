"""The SQLite engine: one writer thread with group commit, readers beside it, tables made from layouts."""
