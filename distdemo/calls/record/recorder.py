"""Write the notes of a rank: each call, its outcome, new groups and the end of the program.

``hooks`` and ``kernels`` call this when the program calls torch.distributed. An error here ends the
recording with a reason, and the program continues. What only looks at the program's tensors ends
alone: the calls are still recorded.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from distdemo.calls import notes
from distdemo.calls.flight import GONE, SWITCH, is_nccl
from distdemo.calls.notes import MAX_KNOWN, EndNote, GroupKey, Loss, StopNote, UnseenNote, Writer
from distdemo.calls.record import frames
from distdemo.calls.record.buffers import BufferWatch
from distdemo.calls.record.calls import Fields, Method, described, tensors_of
from distdemo.calls.record.gradients import InPlace
from distdemo.calls.record.held import CallObserver
from distdemo.calls.record.ledger import Ledger
from distdemo.calls.record.reductions import Reductions
from distdemo.calls.record.samplers import Samplers
from distdemo.calls.record.steps import REDUCTIONS, Steps
from distdemo.calls.records import PartialCall, RankCall, SourceLine, TorchPart, Unseen
from distdemo.launcher.failures import has_lost_peer, text_of
from distdemo.launcher.records import headline
from distdemo.observe.hooks import Listener, in_backward, opaque, replace_function
from distdemo.view.foreign import write_message

if TYPE_CHECKING:
    from distdemo.calls.record.flight import Flight

SCATTERING = {"reduce_scatter", "reduce_scatter_single"}
EXCHANGES = {"all_gather", "all_gather_single", "all_to_all", "all_to_all_single", "gather", "send"}
CARRIERS = {"broadcast", "all_reduce_coalesced", *REDUCTIONS, *EXCHANGES}
"""Ops that may carry parameters or their gradients."""
CREATIONS = {"init": "init_process_group", "rpc": "init_rpc"}
"""Function that makes a connection of this kind; new_group makes all other groups."""
MAX_EARLY = 1000  # calls before the first optimizer that may carry parameters
MAX_ERROR_CHARS = 400  # characters of an exception's text
MAX_UNSEEN = 50  # different things that the rank couldn't look at


class Tracked(NamedTuple):
    """Call that a handle belongs to.

    Attributes:
        number: Number of the call on this rank.
        sync: True if torch waits in the call itself.
        from_any: True for a receive from any rank.
        cpp: True for a call from C++.
        message: True for a send or receive.
    """

    number: int
    sync: bool
    from_any: bool
    cpp: bool = False
    message: bool = False


class ThreadState(threading.local):
    """State of a thread.

    Attributes:
        busy: True within a recorded call.
        unaccepted: True if torch may still reject the latest call.
        graph_task: Backward pass at whose end the thread waits for ``last_in_backward``.
        last_in_backward: Number of the latest call of DDP in this pass.
    """

    busy = False
    unaccepted = False
    graph_task = -1
    last_in_backward = -1


class Recorder(Listener):
    """Records the calls of this rank.

    Args:
        writer: Writer of the notes.
        world: This rank and the world size for the reader of the notes; by default the program's.
        buffers: True to watch the tensors of calls, too.
        replicas: Number of steps between comparisons of parameters; 0 for a few steps only.
        delays: Seconds to sleep before each of the first calls.
        is_asked: Function that returns True if the reader of the notes has asked for the lines of
            calls that only torch's flight recorder has, since it did so last.

    Attributes:
        local: State of the current thread.
        off: True if recording has stopped.
        observer: Observer that every call is passed to before it is made, or None.
        size: World size for the reader of the notes, or 0 if unknown.
    """

    def __init__(
        self,
        writer: Writer,
        world: tuple[int, int] | None = None,
        *,
        buffers: bool = False,
        replicas: int = 0,
        delays: Iterable[float] = (),
        is_asked: Callable[[], bool] = lambda: False,
    ) -> None:
        self._writer = writer
        self._world = world
        self.size = 0 if world is None else world[1]
        self._delays = iter(delays)
        self._lock = threading.RLock()  # a signal handler may call, too
        self.local = ThreadState()
        self._calls: dict[Any, int] = {}
        self._code_refs: list[CodeType] = []  # keeps their ids from being reused
        self._groups: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()
        """Numbers of each group by device; one number without a device if all are alike."""
        self._pending_groups: dict[tuple[str, tuple[int, ...]], dict[str, int]] = {}
        self._group_lines: list[str] = []
        self._alike: Counter[tuple[tuple[int, ...], str, str]] = Counter()
        """Number of groups by members, backend and device."""
        self._lone_groups = 0
        self._spare_threads = WeakSet(threading.enumerate())  # not of the program
        self._has_told_others = False
        self._rpc_members: tuple[int, ...] = ()
        self._closed_when_freed: WeakSet[Any] = WeakSet()
        """Groups that, once destroyed, keep their connections until they are freed."""
        self._destroyed: WeakKeyDictionary[Any, notes.Destruction] = WeakKeyDictionary()
        self._handles: dict[ref[Any], Any] = {}
        """Call, or other futures, that each handle or future waits for."""
        self._on_handle_end = self._forget_handle
        self._dropped: deque[int] = deque()
        """Sends and receives whose handles were dropped since the last note."""
        self._unseen: dict[tuple[Unseen, tuple[str, ...]], UnseenNote] = {}
        guard = partial(self.beside, "buffers")
        self.buffers = BufferWatch(guard, self.record) if buffers else None
        self.in_place = InPlace(self.record, self.record_unseen)
        self.reductions = Reductions(self.record_on_group)
        self.ledger = Ledger(
            replicas,
            self._number_of,
            self.record,
            self.record_on_group,
            self.reductions,
            self.record_unseen,
        )
        self.steps = Steps(self.safely, self.ledger.module_of)
        self.samplers = Samplers(self.safely, self.steps, self.record, self.record)
        self.observer: CallObserver | None = None
        self.off = False
        self._switch = os.environ.get(SWITCH, "")
        self._lacks_kernels = False  # one couldn't be replaced in this release
        self._flight: Flight | None = None  # made for the first group that it is needed for
        self._is_asked = is_asked
        os.register_at_fork(after_in_child=partial(setattr, self, "off", True))

    def safely(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call a function unless recording has stopped; an exception only stops the recording."""
        if self.off:
            return None
        try:
            return function(*args, **named)
        except Exception as error:  # the program must not be affected
            self.stop(f"{type(error).__name__}: {error}")
            return None

    @contextmanager
    def within_call(self) -> Iterator[None]:
        """Ignore calls of this thread within the block: they belong to a recorded one."""
        is_busy = self.local.busy
        self.local.busy = True
        try:
            yield
        finally:
            self.local.busy = is_busy

    def beside(self, what: Unseen, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call a function that looks at tensors; note an exception once, and go on recording."""
        if self.off:
            return None
        try:
            with torch._C.DisableTorchFunction():  # else subclasses would see it
                return function(*args, **named)
        except Exception as error:  # whatever such a tensor raises
            self.safely(self.record_unseen, what, (f"{type(error).__name__}: {text_of(error)}",))
            return None

    def before_backward(self, outputs: Iterable[Any]) -> None:
        """Look for gradients that ignore a collective, before they are computed."""
        self.beside("gradients", self.in_place.on_backward, outputs)
        if self.buffers is not None:
            self.beside("buffers", self.buffers.results.on_backward, outputs)

    def stop(self, why: str) -> None:
        """Stop recording, which ends the comparison for all ranks; the program continues."""
        if self.off:
            return
        self.off = True
        try:
            self._write(notes.note_line(StopNote(why[:MAX_ERROR_CHARS])))
        except (OSError, ValueError):  # the launcher can't be told
            write_message(f"distdemo's sanitizer stopped on this rank: {why}\n")

    # -------------------------------------------------------------------------------------- calls

    @property
    def is_tested(self) -> bool:
        """True if calls from C++ over gloo are read from the flight recorder, as over NCCL."""
        return bool(self._switch)

    @property
    def calls(self) -> int:
        """Number of recorded calls."""
        return self._writer.calls

    def record_call(
        self,
        group: Any,
        fields: Fields,
        method: Method,
        args: tuple[Any, ...],
        *,
        cpp: bool = False,
    ) -> int:
        """Record a call and return its number on this rank.

        Args:
            group: Group of the call.
            fields: Result of ``calls.fields_of``.
            method: Method of ``ProcessGroup``.
            args: Its arguments.
            cpp: True for a call from C++.
        """
        delay = next(self._delays, 0.0)
        if delay:
            time.sleep(delay)
        if self.steps.compiled is not None:
            self.steps.count_compiled()
        numbers = self._groups[group]
        step = -1
        if fields.op in CARRIERS and (
            self._writer.calls < MAX_EARLY or self.reductions.is_training or in_backward()
        ):
            number = next(iter(numbers.values()))
            step = self._carry(group, number, fields, tensors_of(method, args))
        return self._record(fields, numbers, cpp=cpp, step=step)

    def _carry(self, group: Any, number: int, fields: Fields, tensors: Sequence[Any]) -> int:
        """Note the tensors of a call that may be gradients; return the step, or -1."""
        within = in_backward()
        step = self.steps.of_call(group, fields.op) if within else -1
        if step >= 0:
            self.ledger.safely(self.reductions.add_by_torch, number, tensors)
        elif fields.op not in SCATTERING:
            is_equal = fields.op not in EXCHANGES
            add = partial(self.reductions.add, in_backward=within, is_equal=is_equal)
            self.ledger.safely(add, number, tensors, fields.reduce_op)
        return step

    def record_new_group(self, members: tuple[int, ...], how: str = "") -> None:
        """Record a call that creates a group.

        Groups of one rank may differ between ranks: no rank waits in them. But torch numbers
        groups, so all ranks must have created the same number before the next group.

        Args:
            members: Global ranks of the members.
            how: ``init`` for the default group; ``rpc`` for RPC's agents; ``local`` if only the
                members call it, so it is a call on a group of these; empty if the whole world does.
        """
        call = RankCall(
            CREATIONS.get(how, "new_group"),
            SourceLine(),
            members=members,
            named_after=_group_count() if how == "local" else 0,
        )
        if not how and len(members) == 1:
            how = "local"
            self._lone_groups += 1
        if how:
            self._record(call, self._pending_group(how, members))
        else:
            call = replace(call, lone_groups=self._lone_groups)
            self._record(call, self._groups[dist.group.WORLD])

    def _pending_group(self, how: str, members: tuple[int, ...]) -> dict[str, int]:
        """Return the number under which these members create groups."""
        with self._lock:
            if (how, members) not in self._pending_groups:
                number = self._define_group(GroupKey(members, how, 0))
                self._pending_groups[how, members] = {"": number}
            return self._pending_groups[how, members]

    def rpc_members(self, rank: int, world_size: int | None) -> tuple[int, ...] | None:
        """Return the ranks that wait for each other in ``init_rpc`` and ``rpc.shutdown``.

        This is only the rank itself if they aren't those of the launcher, and None outside its
        world.
        """
        if self._world is None:
            return None
        is_world = (rank, world_size) == self._world
        self._rpc_members = tuple(range(self.size)) if is_world else self._world[:1]
        return self._rpc_members

    def record_rpc_shutdown(self) -> bool:
        """Record that the rank waits until RPC has ended on all ranks; False if it isn't known."""
        if not self._rpc_members:
            return False
        call = RankCall("rpc.shutdown", SourceLine())
        self._record(call, self._pending_group("rpc", self._rpc_members))
        self.record_accept()
        return True

    def record_non_member(self, op: str) -> None:
        """Record a collective on a group that this rank isn't in, where torch does nothing."""
        if op == "monitored_barrier":  # torch's warning is enough: it moves no data
            return
        if self.is_registered(dist.group.WORLD):
            call = RankCall(op, SourceLine(), outside=True)
            self._record(call, self._groups[dist.group.WORLD])

    @contextmanager
    def record_meeting(self, name: str) -> Iterator[None]:
        """Record that this rank waits within the block until every rank of the world does.

        Nothing is recorded if calls on the default group aren't compared.
        """
        is_recorded = self.is_registered(dist.group.WORLD)
        if is_recorded:
            self._record(RankCall(name, SourceLine()), self._groups[dist.group.WORLD])
            self.record_accept()
        yield
        if is_recorded:
            self.record_return()

    def _record(
        self, what: Fields | RankCall, groups: dict[str, int], *, cpp: bool = False, step: int = -1
    ) -> int:
        """Record a call from the current line, which is defined when it is made first.

        Args:
            what: The call.
            groups: Number of the group by device.
            cpp: True for a call from C++.
            step: Step that it belongs to, or -1.
        """
        place, stack = frames.user_frames(3)
        key = (what, place, id(groups), cpp)
        flight = self._flight
        with self._lock:
            if self._dropped:
                self._write_dropped()
            number = self._calls.get(key)
            if number is None:
                line = frames.line_of_frames(stack, cpp=cpp)
                if isinstance(what, Fields):
                    call = described(what, line)
                else:
                    call = replace(what, source_line=line)
                if len(self._calls) >= MAX_KNOWN:
                    self._forget_calls()
                self._calls[key] = number = len(self._calls)
                group = groups.get("" if "" in groups else call.device or "cpu", 0)
                self._writer.write(notes.note_line(call, number, group))
                self._code_refs += (frame.f_code for frame in stack)
            text = str(number) if step < 0 else f"{number} {step}"
            watched = -1 if flight is None else self._watched(what, groups)
            if flight is None or watched < 0:
                index = self._writer.write(text, is_call=True)
            else:
                hooked = flight.expect(watched)
                is_message = what.peer is not None
                if not (hooked.is_next or is_message):
                    text = f"{text} ~"
                index = self._writer.write(text, is_call=True)
                flight.begin(hooked, index, is_message=is_message)
            self.local.unaccepted = not cpp
        return index

    def _watched(self, what: Fields | RankCall, groups: dict[str, int]) -> int:
        """Return the group of a call if the flight recorder tells its order, or -1."""
        if self._flight is None:
            return -1
        device = what.device if isinstance(what, RankCall) else "".join(map(str, what.data[2:3]))
        number = groups.get("" if "" in groups else device or "cpu", 0)
        return number if self._flight.watches(number) else -1

    def is_left_to_torch(self, group: Any, *, cpp_on: str = "") -> bool:
        """Return True if only the flight recorder notes such calls on a group.

        Args:
            group: Group.
            cpp_on: Device of a call from C++; empty for calls from Python.
        """
        flight = self._flight
        if flight is None:
            return False
        numbers = self._groups.get(group, {})
        if cpp_on:
            return flight.watches(numbers.get("" if "" in numbers else cpp_on, -1))
        return flight.alone and any(map(flight.watches, numbers.values()))

    def _forget_calls(self) -> None:
        """Define each call again when it is made next."""
        self._calls.clear()
        self._code_refs.clear()

    # --------------------------------------------------------------------------- acceptance, waits

    def record_accept(self, *_: object, **__: object) -> None:
        """Record that torch has accepted this thread's latest call, once."""
        self.record_made()
        if self.local.unaccepted:
            self.local.unaccepted = False
            self._write(f"a{self._other_threads()}")

    def record_made(self) -> None:
        """Tell the reader of the flight recorder that this thread's latest call was made."""
        if self._flight is not None:
            self._flight.end()

    def record_return(self, source: int = -1) -> None:
        """Record that the call or wait has returned.

        Args:
            source: Group rank of the sender for a receive from any rank, or −1.
        """
        self.record_made()
        self._write("r" if source < 0 else f"r {source}")

    def record_failure(self, *, accepted: bool) -> None:
        """Record that the call or wait raised.

        Args:
            accepted: True if torch had accepted the call.
        """
        if self._flight is not None:
            self._flight.end() if accepted else self._flight.drop()
        self._write("f" if accepted else "u")

    def track(self, work: Any, call: Tracked) -> None:
        """Remember the call that a handle belongs to."""
        self._handles[ref(work, self._on_handle_end)] = call

    def track_future(self, future: Any, *origins: Any) -> None:
        """Remember the handle or futures that a future waits for."""
        known = tuple(origin for origin in origins if ref(origin) in self._handles)
        if known:
            self._handles[ref(future, self._on_handle_end)] = known

    def _forget_handle(self, handle: ref[Any]) -> None:
        """Forget a handle that the program has dropped.

        This may run at any moment, also while a note is written, so it writes none.
        """
        call = self._handles.pop(handle, None)
        if isinstance(call, Tracked) and call.message and not call.sync:
            self._dropped.append(call.number)

    def _write_dropped(self) -> None:
        while self._dropped:
            self._writer.write(f"d {self._dropped.popleft()}")

    def record_wait(self, handle: Any) -> Tracked | None:
        """Record that a call is waited for, and return it, or None if it isn't a recorded call."""
        origin = self._handles.pop(ref(handle), None)
        if isinstance(origin, Tracked):
            if self.buffers is not None:
                self.buffers.on_wait(origin.number)
            if not origin.sync:
                self._write_wait(origin.number)
            return origin
        for other in origin or ():
            with suppress(Exception):  # the future itself raises it, too
                other.wait()
        return None

    def record_poll(self, work: Any, answer: object) -> None:
        """Record that a call is known to be done, or that a future of it was taken."""
        call = self._handles.get(ref(work))
        if answer is False or call is None:
            return
        if self.buffers is not None:
            self.buffers.on_wait(call.number)
        if not (call.sync or call.cpp):
            self._write(f"n {call.number}")
        if isinstance(answer, torch._C.Future):
            self.track_future(answer, work)
        elif not call.from_any:  # only a wait tells the sender
            self.track(work, call._replace(sync=True))

    def record_wait_after_backward(self, number: int) -> None:
        """Record that this thread waits for a call when the gradients are computed.

        The engine calls functions in the order in which they were queued: ours before DDP's, which
        waits for all calls. The last call can only be over if its group made the ones before.
        """
        task = torch._C._current_graph_task_id()
        self.local.last_in_backward = number
        if task != self.local.graph_task:
            self.local.graph_task = task
            torch.autograd.Variable._execution_engine.queue_callback(self._wait_after_backward)

    @opaque
    def _wait_after_backward(self) -> None:
        self.safely(self._write_wait, self.local.last_in_backward)

    def _write_wait(self, number: int) -> None:
        self._write(f"w {number}{self._other_threads()}")

    def _other_threads(self) -> str:
        """Return a mark if there are threads that haven't called, and so may still do so.

        The threads of RPC run functions of other ranks; Python doesn't list them.
        """
        self._has_told_others = _is_rpc_running() or (
            threading.active_count() > 1
            and any(
                thread.ident not in self._writer.threads and thread not in self._spare_threads
                for thread in threading.enumerate()
            )
        )
        return " +" if self._has_told_others else ""

    def record_thread_end(self, _: threading.Thread) -> None:
        """Record that this thread has ended, if a reader may think that it can still call."""
        with self._lock:
            if self._has_told_others or threading.get_ident() in self._writer.threads:
                self._write(f"x{self._other_threads()}")
                self._writer.forget_thread()

    def _write(self, line: str) -> None:
        with self._lock:
            if self._dropped:
                self._write_dropped()
            self._writer.write(line)

    # ------------------------------------------------------------------------------------- groups

    def is_registered(self, group: Any) -> bool:
        """Return True if the group was registered."""
        return group in self._groups

    def register(self, group: Any) -> None:
        """Record a new group. Groups with the same members are distinguished by their order.

        If devices have different backends, each backend has its own sequence of calls.
        """
        if group in self._groups or self.off or self._is_renumbered():
            return
        members = tuple(int(rank) for rank in c10d._world.pg_group_ranks[group])
        with self._lock:
            self._forget_calls()  # their keys contain group addresses, which may be reused
            self._groups[group] = {}
            backends = _backends(group)
            if {*backends.values()} == {"gloo"}:
                self._closed_when_freed.add(group)
            for device, backend in backends.items():
                key = GroupKey(members, backend, self._alike[members, backend, device], device)
                self._alike[members, backend, device] += 1
                number = self._groups[group][device] = self._define_group(key)
                if len(members) > 1 and (is_nccl(backend) or self._reads(backend)):
                    self._watch(group, number, device, backend)

    def _reads(self, backend: str) -> bool:
        """Return True if calls from C++ are read though hooks could see them on the CPU."""
        return backend == "gloo" and (self._lacks_kernels or self.is_tested)

    def read_from_recorder(self) -> None:
        """Read calls from C++ over gloo from torch's flight recorder, as hooks can't see them."""
        self._lacks_kernels = True
        for group, numbers in list(self._groups.items()):
            for device, backend in _backends(group).items():
                number = numbers.get(device, -1)
                is_watched = self._flight is not None and self._flight.watches(number)
                if backend == "gloo" and group.size() > 1 and number >= 0 and not is_watched:
                    self._watch(group, number, device, backend)

    def _watch(self, group: Any, number: int, device: str, backend: str) -> None:
        """Read the calls on a group from torch's flight recorder, as hooks can't see them all."""
        if self._flight is None:
            from distdemo.calls.record.flight import Flight  # few programs need it

            self._flight = Flight(self, self._is_asked, alone=self._switch == "alone")
            if is_nccl(backend):
                self._spare_captures(self._flight)
        on = torch.device(device or ("cuda" if is_nccl(backend) else "cpu"))
        self._flight.watch(number, backend, group.group_name, partial(_count, ref(group), on))
        if self._flight.thread is not None:
            self._spare_threads.add(self._flight.thread)

    def _spare_captures(self, flight: Flight) -> None:
        """Read nothing while the program captures a CUDA graph."""

        def beginning(original: Any) -> Any:
            def capture_begin(*args: Any, **named: Any) -> Any:
                flight.begin_capture()
                try:
                    return original(*args, **named)
                except BaseException:  # there is no capture
                    flight.end_capture()
                    raise

            return capture_begin

        def ending(original: Any) -> Any:
            def capture_end(*args: Any, **named: Any) -> Any:
                try:
                    return original(*args, **named)
                finally:
                    flight.end_capture()

            return capture_end

        replace_function(torch.cuda.CUDAGraph, "capture_begin", beginning)
        replace_function(torch.cuda.CUDAGraph, "capture_end", ending)

    # ------------------------------------------------------------- what the flight recorder tells

    def note_order(self, number: int = -1) -> None:
        """Note which call is next on its group; -1 if the flight recorder was read to the end."""
        self._write_recorded("o" if number < 0 else f"o {number}")

    def note_recorded(self, group: int, call: PartialCall, at_us: int) -> int:
        """Note a call that no hook has seen, and return its number on this rank."""
        key = (call, group)
        with self._lock:
            number = self._calls.get(key)
            if number is None:
                if len(self._calls) >= MAX_KNOWN:
                    self._forget_calls()
                self._calls[key] = number = len(self._calls)
                by_torch = SourceLine(part=TorchPart("c++"), cpp=True)
                known = replace(call, source_line=by_torch, sync=False)
                self._writer.write(notes.note_line(known, number, group))
            return self._writer.write(str(number), is_call=True, recorded_us=at_us)

    def note_line(self, number: int, line: SourceLine) -> None:
        """Note the line of such a call."""
        self._write_recorded(f"l {number} {notes.fields_text(line)}")

    def note_loss(self, group: int, calls: int) -> None:
        """Note that the flight recorder has overwritten calls."""
        self.record_on_group(group, Loss(calls))

    def note_waiting(self, number: int | None) -> None:
        """Note that the rank waits for a call that no hook has seen, or that it has ended."""
        self._write_recorded("r" if number is None else f"w {number}")

    def _write_recorded(self, line: str) -> None:
        with self._lock:
            self._writer.write(line, recorded_us=time.time_ns() // 1000)

    def _is_renumbered(self) -> bool:
        """Return True if the program numbers its ranks differently from the launcher."""
        world = dist.group.WORLD
        if self._world is None or world is None:
            return False
        numbers = (world.rank(), world.size())
        if numbers == self._world:
            return False
        is_same_size = numbers[1] == self._world[1]  # other ranks may keep their numbers
        if is_same_size or not self._alike:
            self.stop("the program numbers its ranks differently from the launcher")
        return True

    def record_destroy(self, group: Any = None) -> None:
        """Record that the program destroys a group, unless Python does so at exit."""
        line = frames.source_line()
        if not line.file or frames.owner_of(line.file) != "user":
            return
        is_world = group is None or group is dist.group.WORLD
        error = sys.exc_info()[1]
        failing = None if error is None else _exception_note(error)
        destruction = notes.Destruction(line, failing)
        if is_world and error is None:
            self.ledger.finish()  # the program may change its parameters afterwards
        if self._flight is not None:
            self._flight.poll()  # calls before
        with self._lock:
            for other in self._groups:
                if other is group or (is_world and isinstance(other, dist.ProcessGroup)):
                    if other in self._closed_when_freed:
                        self._destroyed.setdefault(other, destruction)
                    self._record_destruction(other, destruction)

    def _record_destruction(self, group: Any, destruction: notes.Destruction) -> None:
        for number in self._groups[group].values():
            self.record_on_group(number, destruction)

    def _define_group(self, key: GroupKey) -> int:
        """Define a group, and return its number."""
        number = len(self._group_lines)
        used = f"{key.backend}/{key.device}" if key.device else key.backend
        line = f"G {number} {key.nth} {used} {list(key.members)}"
        self._group_lines.append(line)
        self._writer.write(line)
        return number

    @contextmanager
    def copied(self) -> Iterator[bytearray]:
        """Yield a buffer that gets every note within the block, and the definitions it needs."""
        with self._lock:
            self._forget_calls()
            copy = bytearray("".join(f"{line}\n" for line in self._group_lines), "ascii")
            self._writer.copies.append(copy)
        try:
            yield copy
        finally:
            with self._lock:
                self._writer.copies = [other for other in self._writer.copies if other is not copy]

    # ----------------------------------------------------------------------------- tensors, the end

    def record(self, note: object) -> None:
        """Record a misuse of a call's memory, or what the rank trains."""
        self._write(notes.note_line(note))

    def record_unseen(self, what: Unseen, names: Iterable[str], count: int = 1) -> None:
        """Record something that can't be looked at; repeated ones are counted until the end."""
        key = what, tuple(name[:MAX_ERROR_CHARS] for name in names)
        with self._lock:
            known = self._unseen.get(key)
            if known is not None:
                note = self._unseen[key] = replace(known, count=known.count + count)
                if note.count & (note.count - 1) == 0:  # the rank may not reach its end
                    self.record(note)
            elif len(self._unseen) < MAX_UNSEEN:
                line = replace(frames.source_line(), part=None)
                note = self._unseen[key] = UnseenNote(*key, line, count)
                self.record(note)

    def check_replicas(self, group: Any, replicas: Any) -> None:
        """Record digests of tensors that the program names."""
        number = self._number_of(group or dist.group.WORLD)
        if number is not None:
            self.safely(self.ledger.check, number, replicas)

    def _number_of(self, group: Any) -> int | None:
        """Return the number of a group; None if it isn't registered."""
        numbers = None if group is None else self._groups.get(group)
        return None if numbers is None else next(iter(numbers.values()))

    def record_on_group(self, group: int, note: object) -> None:
        """Record a check, gradients or a destruction on the group with this number."""
        if group < len(self._group_lines):
            self._write(notes.note_line(note, group))

    def record_end(self, error: BaseException | None, line: SourceLine | None = None) -> None:
        """Record the end of the program; ``line`` is for an error without a traceback."""
        if self.buffers is not None and error is None:
            for misuse in self.buffers.unwaited():
                self.record(misuse)
        if error is None:
            self.ledger.finish()
            self.samplers.finish()
        for group, destruction in list(self._destroyed.items()):
            self._record_destruction(group, replace(destruction, kept=True))
        for unseen in self._unseen.values():
            if unseen.count > 1:
                self.record(unseen)
        if self._flight is not None:
            self._flight.finish(failed=error is not None)
        end = EndNote("returned") if error is None else _exception_note(error)
        self.record(replace(end, source_line=line) if line else end)


def _is_rpc_running() -> bool:
    """Return True if other ranks may call functions in this process."""
    rpc = getattr(torch._C, "_distributed_rpc", None)  # None in a build of torch without RPC
    return rpc is not None and bool(rpc._is_current_rpc_agent_set())


def _group_count() -> int:
    """Return the number of groups that torch puts into the name of one that only members create."""
    world: Any = c10d._world
    in_order = "group_count" in c10d._hash_ranks_to_str.__code__.co_names  # torch 2.14 and later
    return int(world.group_count) if in_order else len(world.pg_names)


def _count(group: ref[Any], device: torch.device) -> int | None:
    """Return a number that grows with the calls of a group; None if it can't be known."""
    found = group()  # a reference would keep its connections open
    if found is None:
        return GONE
    try:
        return int(found._get_backend(device)._get_sequence_number_for_group())
    except RuntimeError:
        return None


def _backends(group: Any) -> dict[str, str]:
    """Return a group's backends by device; one without a device if all are alike."""
    try:
        config = str(dist.get_backend_config(group))  # cpu:gloo,cuda:nccl
    except (KeyError, RuntimeError, ValueError):
        config = ""
    pairs = [part.partition(":")[::2] for part in config.split(",") if ":" in part]
    if len({backend for _, backend in pairs}) > 1:
        return dict(pairs)
    return {"": pairs[0][1] if pairs else dist.get_backend(group)}


def _exception_note(error: BaseException) -> EndNote:
    """Return the end note of a program that raised."""
    source_line = SourceLine()
    inside = ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        owner = frames.owner_of(code.co_filename)
        line = frames.line_of(code, trace.tb_lineno)
        if owner == "user":
            source_line = line
            inside = ""
        elif owner == "package" and source_line.line:
            source_line = replace(source_line, inner=(line, *source_line.inner))
            inside = ""
        elif code.co_filename == c10d.__file__ and not inside:
            inside = "" if code.co_name == "monitored_barrier" else code.co_name
        trace = trace.tb_next
    if isinstance(error, SystemExit):
        status = error.code
        if status in (None, 0):
            return EndNote("returned", source_line=source_line)
        exit_code, text = (status, "") if isinstance(status, int) else (1, str(status))
        return EndNote("exited", text=text, exit_code=exit_code, source_line=source_line)
    text = re.sub(r" at 0x[0-9a-f]+", "", headline(text_of(error)))
    return EndNote(
        "raised",
        type(error).__name__,
        text,
        source_line=source_line,
        inside=inside,
        lost_peer=has_lost_peer(error),
    )
