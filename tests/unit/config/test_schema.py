from proxy.config.schema import SETTINGS
from tests.support.table import table


@table("name, setting", SETTINGS.items())
def test_every_default_is_readable_and_every_setting_explained(name, setting):
    setting.read(setting.default.replace("{data}", "/var/lib/domicile"))
    assert setting.meaning.endswith(".")
    assert setting.form
