"""Edge protection: which callers the listeners admit, from where and how often.

The data firewall by country and network, rate limits in memory or shared by replicas, limits on
connections and concurrency. It decides before a request is read, routed or answered. It knows no
rules, records or tokens. Face: ``firewall``, ``geoip``, ``rate_limit``, ``shared_limits``,
``quotas`` (concurrency, misses, all limits of an instance), ``connections``.
"""
