"""How a command ends when a signal comes at a bad moment."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from fivesigma._tools.progress import end_if_given_up, signalled
from fivesigma.cli import TERMINATED, orderly_end


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_that_somebody_swallowed_ends_the_command_all_the_same(
    number: signal.Signals, error: type[BaseException]
) -> None:
    """Python drops an exception that falls into the clean-up of an object."""

    @orderly_end()
    def command() -> None:
        with suppress(error):
            signal.raise_signal(number)
        with pytest.raises(error):  # between two rounds or steps
            end_if_given_up()

    before = signal.getsignal(number)
    with pytest.raises(error) as caught:
        command()
    assert number != signal.SIGTERM or caught.value.args == (TERMINATED,)
    assert not signalled
    assert signal.getsignal(number) is before
    end_if_given_up()
