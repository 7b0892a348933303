"""The place of this process in a world that an engine started. No torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of this process in a world that an engine started.

    Attributes:
        engine: ``torchrun``, ``slurm``, ``mpi``, ``environment`` (RANK, WORLD_SIZE and MASTER_*
            set by hand or by an operator such as Kubeflow's) or ``terminals`` (made by the
            command line, never detected).
        rank: of the first rank here.
        world_size: ranks on all hosts together.
        local_rank: of the first rank here, on its host.
        local_size: ranks on this host; 0 if the engine does not tell.
        node: number of the host; −1 if the engine does not tell.
        master: host name or address where the store is; empty if it is not known (mpiexec).
        port: where the store listens on it; 0 if it is not known.
        hosted: the engine itself holds the store there (torchrun's agent).
        job: tells this start from another of the same engine; becomes a prefix of the store's
            keys. Empty if the engine does not tell.
        why: which variables told, for people.
        ranks_here: how many ranks this one process starts itself (terminals: several).
        nodes: how many processes start ranks; 0: one for each rank.
    """

    engine: str
    rank: int
    world_size: int
    local_rank: int
    local_size: int
    node: int
    master: str = ""
    port: int = 0
    hosted: bool = False
    job: str = ""
    why: str = ""
    ranks_here: int = 1
    nodes: int = 0

    @property
    def begins_once(self) -> bool:
        """Whether a second world can't follow the first: MPI begins once in a process."""
        return self.engine == "mpi"

    @property
    def sites(self) -> int:
        """How many processes share the world between them."""
        return self.nodes or self.world_size

    @property
    def site(self) -> int:
        """The number of this process among them; 0 has rank 0."""
        return self.node if self.nodes else self.rank

    def ranks_of(self, site: int) -> range:
        """The ranks that a site starts: as even as can be, the first sites have one more."""
        each, more = divmod(self.world_size, self.sites)
        start = site * each + min(site, more)
        return range(start, start + each + (site < more))
