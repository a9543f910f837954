"""Attachments of records: metadata, encrypted content, and the sweep of objects that no record
names.
"""
