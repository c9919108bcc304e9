"""The bench of the log host: small, but every part of it."""

from pluribus.bench import host


def test_a_plain_machine_is_opened_and_churn_is_bounded(monkeypatch):
    monkeypatch.setattr(host, "QUICK_COMMANDS", 8_000)
    monkeypatch.setattr(host, "QUICK_ROUNDS", 40)
    monkeypatch.setattr(host, "KEPT_BYTES", 1 << 20)
    told = []
    found = host.run(quick=True, progress=told.append)
    values = {row["case"]: row["value"] for row in found["results"]}
    assert values["commands of a plain machine, 8,000"] > 0 and values["opening 8,000 commands"] > 0
    assert 0 < values["live after churn"] < 3 < values["store after churn"], "much of what came is gone"
    assert values["files after churn, as long as they ever were"] > 1
    assert [goal["wanted"] for goal in found["goals"]] == [host.OPEN_S_MAX, host.HOLD_MS_MAX, 1.0]
    assert told[0] == "0 of 8,000 commands" and any("churn" in one for one in told)
