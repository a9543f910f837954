"""Bodies of more than one JSON document or form: uploads, CSV, events, envelopes, patches."""
