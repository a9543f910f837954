"""Schemas of records: the catalogue, its stored form, and migrations."""
