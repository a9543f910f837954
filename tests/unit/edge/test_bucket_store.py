import threading

from proxy.edge.bucket_store import BucketStore, leaky_bucket


def test_an_emptier_one_gives_way_whoever_came_last(limits_clock):
    buckets = BucketStore(100)
    limiter = leaky_bucket(10, 20, buckets)
    for number in range(7):
        for _ in range(15):
            limiter.limit(f"much {number}")
    for number in range(10_000):
        limits_clock.now += 1e-5
        limiter.limit(f"k{number}")
    assert buckets.count() == 100
    assert all(limiter.peek(f"much {number}").remaining < 10 for number in range(7))
    assert limiter.peek("k9999").remaining == 19


def test_one_that_has_run_empty_gives_way_whatever_it_held(limits_clock):
    buckets = BucketStore(100)
    limiter = leaky_bucket(10, 20, buckets)
    for number in range(100):
        for _ in range(20):
            limiter.limit(f"much {number}")
    limits_clock.now += 60
    for number in range(200):
        limiter.limit(f"k{number}")
    assert buckets.count() == 100
    assert [limiter.peek(f"k{number}").remaining for number in range(150, 200)] == [19] * 50


def test_a_bucket_that_is_kept_makes_nobody_give_way(limits_clock):
    buckets = BucketStore(2)
    limiter = leaky_bucket(10, 20, buckets)
    for key in ("a", "b", "b", "a"):
        limits_clock.now += 0.001
        limiter.limit(key)
    assert buckets.count() == 2


def test_nothing_runs_beside_it():
    before = threading.active_count()
    limiter = leaky_bucket(1_000_000, 1_000_000, BucketStore(100))
    for number in range(1_000):
        limiter.limit(f"k{number}")
    assert threading.active_count() == before
