"""What docs/filters.md says of whole numbers beside what is computed, and of unknown: a filter, an event, the truth."""

BIG = 2**53
BESIDE_COMPUTED = [
    ("n > m * 1", {"n": BIG + 1, "m": BIG}, True),
    ("n = m * 1", {"n": BIG + 1, "m": BIG}, False),
    ("n <= m * 1", {"n": BIG + 1, "m": BIG}, False),
    ("m * 1 < n", {"n": BIG + 1, "m": BIG}, True),
    ("m + 0 <> n", {"n": BIG + 1, "m": BIG}, True),
    ("n >= m * 1", {"n": 2**63 - 1, "m": 2**63 - 1}, False),
    ("n >= m * 1", {"n": -(2**63), "m": -(2**63)}, True),
    ("n < m * 2", {"n": 2**63 - 1, "m": 2**62}, True),
    ("n > m * 1", {"n": -BIG - 1, "m": -BIG}, False),
    (f"m * 1 = {BIG + 1}", {"m": BIG}, False),
    (f"m * 1 < {BIG + 1}", {"m": BIG}, True),
    (f"m * 1 <> {BIG + 1}", {"m": BIG}, True),
    (f"m * 1 IN ({BIG + 1})", {"m": BIG}, False),
    (f"m * 1 NOT IN ({BIG + 1})", {"m": BIG}, True),
    (f"m * 1 NOT IN ({BIG + 1})", {}, None),
    (f"m * 1 IN ({BIG + 1}, {BIG})", {"m": BIG}, True),
    ("n > m * 1", {"n": BIG + 1}, None),
    ("n = m * 1", {"n": 0.1, "m": 0.1}, True),
]
UNKNOWN = [
    ("b IS UNKNOWN", {}, True),
    ("b IS UNKNOWN", {"b": None}, True),
    ("b IS UNKNOWN", {"b": True}, False),
    ("b IS UNKNOWN", {"b": "odd"}, True),
    ("b IS UNKNOWN", {"b": 7}, True),
    ("b IS NOT UNKNOWN", {"b": "odd"}, False),
    ("b IS NOT UNKNOWN", {"b": False}, True),
    ("b IS NULL", {"b": "odd"}, False),
    ("NOT b IS UNKNOWN AND NOT b", {"b": False}, True),
    ("(n > 1) IS UNKNOWN", {"n": "odd"}, True),
    ("(n > 1) IS UNKNOWN", {"n": 0}, False),
]
