"""Use cases on records of the interface: query, find, aggregate, create, update, delete, history."""
