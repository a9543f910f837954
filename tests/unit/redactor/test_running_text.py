import re

from proxy.redactor import running_text


def test_tokens_of_a_long_text_are_found_wherever_they_stand(monkeypatch):
    monkeypatch.setattr(running_text, "_SEARCHED", 50)
    monkeypatch.setattr(running_text, "_LONGEST", 20)
    pattern = re.compile(r"(?<![0-9A-Za-z])(?:T[0-9]{8})(?![0-9A-Za-z])")
    texts = [
        " " * before + "T12345678" + between + "T12345678 T1234567x" * 20
        for before in range(60)
        for between in (" ", "x")
    ]

    for text in texts:
        found = [(match.start(), match[0]) for match in running_text._matches(pattern, text)]
        assert found == [(match.start(), match[0]) for match in pattern.finditer(text)]
