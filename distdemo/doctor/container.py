"""Containers: whether this is one, and what of it shows from inside."""

from __future__ import annotations

from distdemo.doctor.seen import Seen, fine, skipped
from distdemo.doctor.surroundings import Surroundings

SIGNS = {
    ".dockerenv": "Docker",
    "run/.containerenv": "Podman",
    ".singularity.d": "Apptainer",
    "run/systemd/container": "systemd-nspawn or LXC",
}
WORDS = {"docker": "Docker", "kubepods": "Kubernetes", "lxc": "LXC", "libpod": "Podman"}


def container(around: Surroundings) -> Seen:
    """Which one, if any. Its limits are found by the checks of each."""
    found = kind(around)
    if not found:
        return skipped("this is none, as far as can be seen")
    return fine(
        f"{found}; between machines it needs the host's network (docker run --network host) or "
        "one that the others reach",
        kind=found,
    )


def kind(around: Surroundings) -> str:
    """Its name; empty for none."""
    if around.environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    for path, name in SIGNS.items():
        if around.exists(path):
            return name
    groups = around.text("proc/1/cgroup")
    return next((name for word, name in WORDS.items() if word in groups), "")
