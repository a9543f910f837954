"""The tables of the interface specification, case by case, over HTTP and on every engine.

``schema`` declares one field of each type and storage class; a case says what is sent and what the
specification has as its answer.
"""
