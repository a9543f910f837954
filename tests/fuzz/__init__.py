"""Fuzz targets: code that reads what strangers write, each with what must hold whatever it is
given.

``test_fuzz.py`` runs each of them for a moment with every run of the tests, beginning with
``corpus/``. For longer: ``make fuzz ARGS="json 600"``, by the name of a target and seconds; with
atheris where it is installed.
"""
