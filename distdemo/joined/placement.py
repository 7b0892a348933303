"""Placement of this process in a world that an engine started. No torch."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of this process in a world that an engine, or several terminals, started.

    A *node* is one process that starts ranks: several per terminal, one per process of an engine.
    Node 0 has rank 0; it judges the world and shows the result.

    Attributes:
        engine: ``torchrun``, ``slurm``, ``mpi``, ``environment`` (RANK, WORLD_SIZE and MASTER_*
            set by hand or by an operator such as Kubeflow's) or ``terminals`` (from the
            command line, never detected).
        rank: First rank of this process.
        world_size: Number of ranks on all nodes.
        local_rank: Number of this process's first rank on its host.
        local_size: Number of ranks on this host; 0 if unknown.
        master: Host name or address of the store; empty if unknown (mpiexec).
        port: Port of the store; 0 if unknown.
        hosted: True if the engine serves the store (torchrun's agent).
        job: Unique name of this run of the engine; empty if the engine has none.
        why: Sentence with the variables that were found.
        nnodes: Number of terminals; 0 under an engine.
        node_rank: Number of this terminal.
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
        """True if no second world can follow: MPI can be initialized once per process."""
        return self.engine == "mpi"

    @property
    def one_host(self) -> bool:
        """True if all ranks are known to be on this host."""
        return self.local_size == self.world_size

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.nnodes or self.world_size

    @property
    def node(self) -> int:
        """Number of this node."""
        return self.node_rank if self.nnodes else self.rank

    @property
    def ranks_here(self) -> int:
        """Number of ranks on this host, or at least those of this node."""
        return len(self.ranks_of(self.node)) if self.nnodes else max(1, self.local_size)

    def sized(self, world_size: int) -> Placement:
        """Return a terminal's placement in a world of this size."""
        known = replace(self, world_size=world_size)
        return replace(known, rank=known.ranks_of(self.node).start)

    def ranks_of(self, node: int) -> range:
        """Return the ranks of a node; the first nodes have one more if it doesn't divide evenly."""
        share, more = divmod(self.world_size, self.nodes)
        start = node * share + min(node, more)
        return range(start, start + share + (node < more))
