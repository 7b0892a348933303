"""PyTorch's own tests of RPC: pytest test_torch_rpc.py -k "rpc_return and not Jit"."""

import pytest
from torch.testing._internal.distributed import rpc_utils
from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import (
    TensorPipeRpcAgentTestFixture,
)

from distdemo.testing.suite import RanksTestCase

for suite in rpc_utils.GENERIC_TESTS + rpc_utils.TENSORPIPE_TESTS:
    bases = (RanksTestCase, suite, TensorPipeRpcAgentTestFixture, rpc_utils.SpawnHelper)
    name = f"TensorPipe{suite.__name__}"
    size = suite.world_size.fget(None)  # 4; some suites have another one
    # Ranks find a class by module and name, so it has to be a global name of this module.
    globals()[name] = pytest.mark.ranks(size, timeout=120)(
        type(name, bases, {"__module__": __name__})
    )
