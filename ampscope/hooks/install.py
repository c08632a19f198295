"""Builds the session of this process: from the environment when `ampscope run` started it, or for a Recorder."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.process
import os
from typing import Any

from ampscope.hooks.aftermath import Aftermath
from ampscope.hooks.api_calls import ApiCalls
from ampscope.hooks.backward import Backward
from ampscope.hooks.blame import Blame
from ampscope.hooks.blocks import Blocks
from ampscope.hooks.census_control import CensusControl
from ampscope.hooks.compiled import Compiled
from ampscope.hooks.edits import GradEdits
from ampscope.hooks.exceptions import Exceptions
from ampscope.hooks.ledger import Ledger
from ampscope.hooks.modules import Modules
from ampscope.hooks.optimizers import Optimizers
from ampscope.hooks.parameters import Parameters
from ampscope.hooks.ranges import Ranges
from ampscope.hooks.scaler import Scaler
from ampscope.hooks.session import Session
from ampscope.hooks.settings import Settings
from ampscope.hooks.updates import Updates
from ampscope.overrides import Overrides

_current: Session | None = None
_fork_hook = False


def current() -> Session | None:
    """The session of this process, if one records."""
    return _current


def install_from_environment() -> None:
    """Start recording if `ampscope run` asked for it. Idempotent: torch may be imported more than once."""
    if _current is not None:
        return
    settings = Settings.from_env()
    if settings is not None:
        start(settings)


def start(settings: Settings) -> Session:
    """Install a session. Raises RuntimeError when one records already, and what goes wrong on the way, with every
    hook taken away again."""
    global _current, _fork_hook
    if _current is not None:
        raise RuntimeError("ampscope records this process already: end the other Recorder first.")
    session = Session(settings, on_activate=_close_with_multiprocessing)
    _current = session
    try:
        session.start(_collectors(session))
    except BaseException:
        _current = None
        session.abandon()
        raise
    atexit.register(stop, session)
    if not _fork_hook:
        _fork_hook = True
        os.register_at_fork(after_in_child=_after_fork)
    return session


def stop(session: Session) -> None:
    """Remove the hooks and write what is left. Never raises."""
    global _current
    if _current is session:
        _current = None
    with contextlib.suppress(ValueError):
        atexit.unregister(stop)
    try:
        session.close()
    except Exception as error:
        if session.settings.strict:
            raise
        session.say(f"the trace could not be finished ({type(error).__name__}: {error}).")
    if type(session.failed) is KeyboardInterrupt:
        _die_of_interrupt()


def _die_of_interrupt() -> None:
    """CPython ends by SIGINT when an interrupt reached the top, and forgets it when source text is executed after
    that, as importing pyarrow does. An interrupt that escapes from such text reminds it."""
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


def _collectors(session: Session) -> list[Any]:
    """In the order in which segments are opened and closed: readers before the clock's own rows."""
    parameters = Parameters(session)
    session.parameters = parameters
    optimizers = Optimizers(session, parameters)
    scaler = Scaler(session, optimizers)
    ranges = Ranges(session, parameters, scaler.scales)
    updates = Updates(session)
    blame = Blame(session)
    api = ApiCalls(session, parameters)
    backward = Backward(session, parameters, scaler.scales)
    exceptions = Exceptions(session)
    edits = GradEdits(session, parameters, scaler.scales)
    census = CensusControl(session)
    aftermath = Aftermath(session)
    order: list[Any] = [Overrides(session), exceptions, parameters, ranges, updates, blame, edits]
    blocks = Blocks(session)
    modules = Modules(session, ranges.on_output, blame.on_inputs, blocks)
    scaler.listen(edits.look, blame.on_skip)
    scaler.listen(ranges.on_scaled_gradients, _nothing)
    api.listen(lambda params, scaled: edits.look_at(params))
    api.listen(ranges.on_clip)
    optimizers.listen(edits.before_step, _nothing)
    optimizers.listen(ranges.before_step, ranges.after_step)
    optimizers.listen(updates.before_step, updates.after_step)
    backward.listen(edits.after_backward)
    backward.at_end(census.after_backward)
    backward.bad_loss = aftermath.on_bad_loss
    session.shortcuts.connect(parameters, optimizers, scaler, backward, census)
    session.rest.connect(parameters, optimizers, scaler)
    return [
        session.shortcuts,
        *order,
        blocks,
        modules,
        optimizers,
        scaler,
        backward,
        api,
        census,
        aftermath,
        Compiled(session),
        Ledger(session),
    ]


def _nothing(*args: Any) -> None:
    """A listener that has no interest in this moment."""


def _close_with_multiprocessing(session: Session) -> None:
    """Children of multiprocessing leave by os._exit, after their finalizers and without atexit. Asked when the
    process starts to train: right after a fork it does not know yet that it is such a child."""
    if multiprocessing.process.parent_process() is not None:
        from multiprocessing import util

        util.Finalize(None, stop, args=(session,), exitpriority=100)


def _after_fork() -> None:
    """A forked child trains on its own account, or not at all: it starts with a session of its own."""
    global _current
    session, _current = _current, None
    if session is None:
        return
    session.abandon()
    with contextlib.suppress(Exception):
        start(session.settings)
