"""Searches: the values in query, form, JSON body or path, found and written in their words."""
