import re

from proxy.redactor import inner_texts


def test_tokens_of_a_long_text_are_found_wherever_they_stand(monkeypatch):
    monkeypatch.setattr(inner_texts, "_SEARCHED", 50)
    monkeypatch.setattr(inner_texts, "_LONGEST", 20)
    pattern = re.compile(r"(?<![0-9A-Za-z])(?:T[0-9]{8})(?![0-9A-Za-z])")
    texts = [
        " " * before + "T12345678" + between + "T12345678 T1234567x" * 20
        for before in range(60)
        for between in (" ", "x")
    ]

    for text in texts:
        found = [(match.start(), match[0]) for match in inner_texts._matches(pattern, text)]
        assert found == [(match.start(), match[0]) for match in pattern.finditer(text)]
