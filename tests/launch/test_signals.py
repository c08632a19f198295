"""Signals from the terminal and from processes are told apart."""

from __future__ import annotations

import os
import signal

from ampscope.launch import signals


def test_faults_and_the_unblockable_are_left_alone() -> None:
    waited = signals.waitable()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGWINCH} <= waited
    assert not waited & {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGABRT}


def test_a_signal_of_a_process_is_not_of_the_terminal() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.wait({signal.SIGUSR1}) == signals.Received(signal.SIGUSR1, False, os.getpid())
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        signals.drop_pending({signal.SIGUSR1})
        assert signal.sigpending() == {signal.SIGUSR2}
        signals.drop_pending({signal.SIGUSR2})
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_signal_of_the_kernel_is_of_the_group() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        assert signals.wait({signal.SIGALRM}).to_group
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
