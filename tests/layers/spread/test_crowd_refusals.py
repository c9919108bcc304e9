"""Who has another stack asks again and again; that is said once."""

import logging

import pytest

from pluribus.core.frame import Frame
from pluribus.layers.spread.crowd import Crowd
from pluribus.layers.spread.crowd_words import Enter
from tests.layers.alone import Alone


def test_who_has_another_stack_is_refused_and_that_is_said_once(caplog: pytest.LogCaptureFixture):
    alone = Alone(Crowd(), 1)
    alone.layer.start()
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            alone.layer.up(Frame(sender=2, headers=[Enter(("m2", 0), "another")]))
    assert len(caplog.records) == 1
    assert 2 not in alone.layer.view
