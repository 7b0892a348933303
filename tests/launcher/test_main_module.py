from __future__ import annotations

import pickle
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from distdemo.errors import UsageError
from distdemo.launcher.messages import check_main_file, dumps_work, is_lost


def work() -> None: ...


class Batch: ...


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A main module without a file, in which ``work`` and ``Batch`` were defined."""
    module = ModuleType("__main__")
    module.work, module.Batch = work, Batch  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.setattr(work, "__module__", "__main__")
    monkeypatch.setattr(Batch, "__module__", "__main__")
    return module


def test_a_prompt_has_nothing_to_import(main: ModuleType) -> None:
    assert is_lost(work)
    assert is_lost(Batch)
    assert not is_lost(Path)
    assert not is_lost(Batch())
    assert not is_lost("work")
    check_main_file("Why.")  # what is not of the prompt can be imported


def test_a_script_can_be_imported(main: ModuleType) -> None:
    main.__file__ = __file__
    assert not is_lost(work)
    check_main_file("Why.")


@pytest.mark.parametrize(
    ("name", "lost"), [("train", False), ("__main__", True), ("package.__main__", True)]
)
def test_a_module_can_be_imported_but_not_the_main_of_a_package(
    name: str, lost: bool, main: ModuleType
) -> None:
    main.__spec__ = ModuleSpec(name, None)
    main.__file__ = __file__
    assert is_lost(work) is lost
    check_main_file("Why.")


def test_a_program_on_stdin_is_refused(main: ModuleType) -> None:
    main.__file__ = "<stdin>"
    assert is_lost(work)
    with pytest.raises(UsageError) as caught:
        check_main_file("The start method is spawn")
    assert "<stdin>" in caught.value.why
    assert "start_method='fork'" in caught.value.hint


@pytest.mark.usefixtures("main")
@pytest.mark.parametrize("args", [(work,), (Batch,), ([Batch()],)])
def test_work_that_a_new_process_could_not_find_is_not_packed(args: tuple[object, ...]) -> None:
    with pytest.raises(pickle.PicklingError, match="was defined in the main program"):
        dumps_work(print, args)
