import threading

import pytest


@pytest.mark.ranks(2, timeout=600)
@pytest.mark.timeout(2)
def test_fails():
    threading.Event().wait(600)


@pytest.mark.ranks(2)
@pytest.mark.timeout(100)
def test_passes():
    pass
