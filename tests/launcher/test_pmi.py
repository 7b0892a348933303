from __future__ import annotations

import os
from unittest.mock import patch

import pytest

from distdemo.launcher.pmi import PmiServer, set_environment

SHARED = (("UCX_TLS", "self,sm"),)


@pytest.mark.processes
def test_in_the_rank_nothing_of_another_starter_is_left():
    server = PmiServer(SHARED, 2)
    outer = {"PMI_ID": "7", "PMIX_RANK": "7", "OMPI_COMM_WORLD_RANK": "7", "UCX_TLS": "all"}
    with patch.dict(os.environ, outer):
        set_environment(*server.connect(1))
        assert not {"PMI_ID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"} & set(os.environ)
        assert os.environ["UCX_TLS"] == "self,sm"
        fd = int(os.environ["PMI_FD"])
        os.write(fd, b"cmd=get_appnum\n")
        assert server.on_message(1)
        assert os.read(fd, 100) == b"cmd=appnum rc=0 appnum=0\n"
        os.close(fd)
    assert not server.on_message(1)
    server.close()
