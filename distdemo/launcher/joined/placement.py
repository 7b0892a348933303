"""Where this process stands in a world that was started from outside. No torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of this process in a world that an engine, or several terminals, started.

    A *node* is one process that starts ranks: a terminal starts several, and each process that an
    engine started has one. Node 0 has rank 0; it judges the world and shows the result.

    Attributes:
        engine: ``torchrun``, ``slurm``, ``mpi``, ``environment`` (RANK, WORLD_SIZE and MASTER_*
            set by hand or by an operator such as Kubeflow's) or ``terminals`` (made by the
            command line, never detected).
        rank: the first rank here.
        world_size: ranks on all nodes together.
        local_rank: the number of the first rank here on its host.
        local_size: ranks on this host; 0 if the engine doesn't say.
        master: host name or address where the nodes meet; empty if nobody says (mpiexec).
        port: the port there; 0 if nobody says.
        hosted: the engine itself keeps a store there (torchrun's agent).
        job: tells this start from another one of the same engine; empty if the engine doesn't.
        why: which variables said so, for people.
        nnodes: the number of terminals; 0 under an engine.
        node_rank: which of them this is.
    """

    engine: str
    rank: int
    world_size: int
    local_rank: int = 0
    local_size: int = 0
    master: str = ""
    port: int = 0
    hosted: bool = False
    job: str = ""
    why: str = ""
    nnodes: int = 0
    node_rank: int = 0

    @property
    def one_world_only(self) -> bool:
        """Whether a second world can't follow the first: MPI begins once in a process."""
        return self.engine == "mpi"

    @property
    def one_host(self) -> bool:
        """Whether it is known that all ranks are on this host."""
        return self.local_size == self.world_size

    @property
    def nodes(self) -> int:
        """How many processes share the world between them."""
        return self.nnodes or self.world_size

    @property
    def node(self) -> int:
        """The number of this process among them."""
        return self.node_rank if self.nnodes else self.rank

    @property
    def ranks_here(self) -> int:
        """How many ranks this host holds, as far as is known."""
        return len(self.ranks_of(self.node)) if self.nnodes else max(1, self.local_size)

    def sized(self, world_size: int) -> Placement:
        """Of a terminal: the same, now that the number of all ranks is known."""
        known = replace(self, world_size=world_size)
        return replace(known, rank=known.ranks_of(self.node).start)

    def ranks_of(self, node: int) -> range:
        """The ranks that a node starts: as even as can be, the first nodes have one more."""
        each, more = divmod(self.world_size, self.nodes)
        start = node * each + min(node, more)
        return range(start, start + each + (node < more))


@dataclass(frozen=True, slots=True)
class Request:
    """What a process was asked to do; all processes of a world have to be asked the same.

    Attributes:
        meaning: everything that has to be the same everywhere.
        command: the command line, for people.
    """

    meaning: str
    command: str

    @property
    def digest(self) -> str:
        """The meaning in 16 digits."""
        return hashlib.sha256(self.meaning.encode()).hexdigest()[:16]
