from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import suppress

import pytest

from distdemo.launcher.joined.link import Ear, Link, Message, linked

Ends = tuple[Link, Link]


@pytest.fixture
def ends() -> Iterator[Ends]:
    both = linked()
    yield both
    for end in both:
        with suppress(OSError):  # a test has closed it
            end.close()


def test_messages_go_both_ways_in_order(ends: Ends) -> None:
    site, herald = ends
    site.send("order", "a")
    site.send("post", "b")
    herald.send("silence", {1: 0.5})
    assert herald.receive() == [("order", "a"), ("post", "b")]
    assert site.receive() == [("silence", {1: 0.5})]
    assert site.receive() == []
    assert not site.closed


def test_the_end_of_the_other_is_noticed_after_what_it_said_last(ends: Ends) -> None:
    site, herald = ends
    herald.send("lost", "no route")
    herald.close()
    assert site.receive() == [("lost", "no route")]
    site.receive()
    assert site.closed


def test_speaking_to_one_that_is_gone_is_no_error(ends: Ends) -> None:
    site, herald = ends
    herald.close()
    site.send("post", "nobody reads it")
    assert site.receive() == []
    assert site.closed


def test_a_link_can_be_waited_for(ends: Ends) -> None:
    site, herald = ends
    assert select.select([site], [], [], 0)[0] == []
    herald.send("heard")
    assert select.select([site], [], [], 0)[0] == [site]
    assert site.fileno() in site.descriptors()


def test_closing_lets_go_of_both_pipes(ends: Ends) -> None:
    site, _ = ends
    site.close()
    for number in site.descriptors():
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)


def test_an_ear_notes_what_it_hears_until_the_herald_has_gone(ends: Ends) -> None:
    site, herald = ends
    noted: list[Message] = []
    over = False
    ear = Ear(site, noted.append, lambda: over)
    herald.send("post", "one")
    herald.send("post", "two")
    assert ear.hear()
    assert noted == [("post", "one"), ("post", "two")]
    assert (ear.fileno(), ear.over) == (site.fileno(), False)
    over = True
    assert ear.over
    herald.send("post", "three")
    herald.close()
    while ear.hear():
        pass
    assert noted[2:] == [("post", "three")]
