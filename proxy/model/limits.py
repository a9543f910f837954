"""How much a request to the vault's own interface may ask for; every number is a setting, its default stands here.

A number without a remark comes from the decisions beside the interface specification, "Limits".
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of records, filters and batches."""

    find_default: int = 100  #: records of a page where nobody says how many
    find_maximum: int = 1000  #: records of a page at most
    page_bytes: int = 16 * 2**20  #: of the sealed records of a page; one record it has in any case
    batch: int = 100  #: records of one batch
    string: int = 256  #: characters of a string field whose schema does not say more
    key: int = 128  #: characters of a primary key
    leaves: int = 1000  #: scalars and empty containers of a JSON field; ours: each is an entry of the index
    depth: int = 32  #: objects and arrays within each other in a JSON field, the field itself counted; ours
    search: tuple[int, int] = (3, 200)  #: characters of a text that is searched for in parts
    like_plain: int = 256  #: characters of ``$like`` on a field whose text stands beside the body; ours
    groups: int = 100  #: groups of a page of an aggregation
    group_keys: int = 10  #: fields an aggregation groups by; ours
    metrics: int = 50  #: figures of an aggregation; ours
    candidates: int = 100_000  #: records that a partial match opens at most; ours
    conditions: int = 200  #: tests of one filter, those inside ``$or`` counted; ours
    values: int = 1000  #: values of one filter, in lists and alone; ours
    faults: int = 1000  #: faults that one answer tells of; ours


#: What holds where no setting says otherwise.
DEFAULTS = Limits()
