from proxy.api.openapi.markup import anchor, blocks, inline


def test_marks_within_a_line():
    assert (
        inline("a `b < c` **d** *e* & f")
        == "a <code>b &lt; c</code> <strong>d</strong> <em>e</em> &amp; f"
    )
    assert inline("<script>") == "&lt;script&gt;"


def test_blocks_are_headings_tables_and_paragraphs():
    text = "## One `x`\n\na\nb\n\n| A | B |\n|---|---|\n| `1` | 2 |"
    assert blocks(text) == (
        '<h2 id="one-x">One <code>x</code></h2>\n<p>a b</p>\n'
        "<table><thead><tr><th>A</th><th>B</th></tr></thead><tbody><tr><td><code>1</code></td><td>2</td></tr></tbody></table>"
    )


def test_an_anchor_has_letters_and_digits_alone():
    assert anchor("Sending again: 2nd") == "sending-again-2nd"


def test_lines_that_begin_with_a_dash_are_a_list():
    assert (
        blocks("- a `b`\n- c\n  d - e\n- f")
        == "<ul><li>a <code>b</code></li><li>c d - e</li><li>f</li></ul>"
    )
