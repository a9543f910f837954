from proxy.config.parsers import Setting
from proxy.config.schema import SETTINGS


def test_every_line_of_the_table_is_one():
    assert all(isinstance(setting, Setting) for setting in SETTINGS.values())


def test_a_setting_takes_one_text_unless_it_says_otherwise():
    assert not Setting("a", str, "a", "A.").many
