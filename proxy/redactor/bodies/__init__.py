"""Bodies that are more than one JSON document or one form: uploads, CSV, events, envelopes,
patches.
"""
