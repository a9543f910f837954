import ctypes
import gc
import subprocess
import sys
import time
import weakref
from pathlib import Path

from proxy.net.memory_budget import bound_arenas, collect_cycles, release
from proxy.offload import in_thread

#: Fills many arenas from many threads, frees all, and tells what is still resident.
PROGRAM = """
import sys, threading, time
from pathlib import Path
from proxy.net.memory_budget import bound_arenas, release
def resident():
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) >> 10
if sys.argv[1] == "bounded":
    assert bound_arenas()
before, held = resident(), []
def fill():
    held.extend(bytearray(60_000) for _ in range(200))
threads = [threading.Thread(target=fill) for _ in range(16)]
for one in threads: one.start()
for one in threads: one.join()
keep = held[::40]
held.clear()
if sys.argv[1] == "bounded":
    release()
    time.sleep(1.0)
print(resident() - before)
"""


def test_bounding_says_whether_there_was_an_allocator_to_bound():
    assert bound_arenas() is hasattr(ctypes.CDLL(None), "mallopt")


def test_what_large_work_freed_is_given_back():
    found = {}
    for kind in ("bounded", "as it is"):
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, kind],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[3],
        )
        found[kind] = int(ran.stdout)
    assert found["bounded"] <= max(60, found["as it is"] // 2), found


def test_a_release_never_waits_for_the_one_before():
    took = []
    for _ in range(5):  # one try may meet a pause of the machine
        since = time.perf_counter()
        for _ in range(100):
            release()
        took.append(time.perf_counter() - since)
    assert min(took) < 1


_IMPORTED = """
from proxy.net.memory_budget import import_aiohttp
import_aiohttp()
import ssl
import aiohttp
from aiohttp import connector
context = connector._SSL_CONTEXT_VERIFIED
print(context.cert_store_stats()["x509"], context.verify_mode is ssl.CERT_REQUIRED)
authorities = ssl.get_default_verify_paths().cafile
made = ssl.create_default_context()
print(authorities is None or made.cert_store_stats()["x509"] > 0)
"""


def test_aiohttp_comes_without_authorities_and_contexts_of_ours_with_them() -> None:
    printed = subprocess.run([sys.executable, "-c", _IMPORTED], capture_output=True, check=True)
    assert printed.stdout.split() == [b"0", b"True", b"True"]


class Node:
    """A cycle of its own, where it is made to be one."""

    def __init__(self) -> None:
        self.itself = self


async def test_what_long_work_on_a_thread_made_is_not_looked_at_by_the_next_run() -> None:
    def much() -> list[list[int]]:
        time.sleep(0.03)
        return [[one] for one in range(1000)]

    before = gc.get_freeze_count()
    made = await in_thread(much)
    assert gc.get_freeze_count() >= before + len(made)
    assert not any(one is made for one in gc.get_objects())
    aside = gc.get_freeze_count()
    await in_thread(len, made)  # a moment's work leaves the collector alone
    assert gc.get_freeze_count() <= aside


def test_cycles_that_were_set_aside_are_collected_once_they_may_be_many() -> None:
    gc.unfreeze()  # what other tests have left there
    gc.collect()
    node = Node()
    gone = weakref.ref(node)
    gc.freeze()
    del node
    aside = collect_cycles(gc.get_freeze_count())
    assert gone() is not None
    kept = [[one] for one in range(60_000)]
    gc.freeze()
    after = collect_cycles(aside)  # less than before, if other tests have left garbage
    assert after == gc.get_freeze_count() >= len(kept)
    assert gone() is None
