"""train: data-parallel training of a small classifier on every rank, and the proof that it is one.

From parsed flags to the report::

    from distdemo.train.limits import check_train     # no torch; UsageError
    from distdemo.train.prepare import prepare        # reads the data; UsageError
    from distdemo.train.main import train             # imports torch
    from distdemo.train.report import report

    check_train(spec, world_size)                       # spec: distdemo.train.records.TrainSpec
    data = prepare(spec, world_size)                    # reads or makes the data, without torch
    preload(world_spec.device)                          # of .prepare: torch, once for all ranks
    world = start(world_spec, train, (spec, data), hear=hear)
    result = report(spec, world, data)                  # -> distdemo.train.records.TrainReport

``hear(rank, value)`` gets a ``Progress`` from rank 0 after every epoch of every
mode and of the reference, and None from any rank that only says that it still moves. ``prepare``
and ``check_train`` never import torch or NumPy, so what they refuse is refused at once; ``preload``
imports torch and what training needs of it, in the process that the ranks are forked from.

One concept a file: ``limits`` (what can't be trained, and how samples are shared out), ``data``
with ``generated``, ``digits`` and ``mnist``; ``partition`` (who sees what when), ``classifier`` and
``tensors``; ``manual``, ``flat``, ``ddp`` and ``single`` behind the contract ``averaging`` and the
registry ``ways``; ``ledger``, ``clock`` and ``spans`` (what moved, when); ``loop`` (the training
itself); ``reference`` (the same on one process, and for how long it can be compared with);
``parts`` (what a rank brings back); ``proofs``.
"""
