"""The OpenAPI document and the page made of it: what a developer reads to build against the vault.

``operations.OPERATIONS`` says which operations there are; the files here say what they mean, one
table a subject. Every example is sent by a test and answers as it says.
"""
