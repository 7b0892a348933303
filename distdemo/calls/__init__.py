"""Record the calls of all ranks, match them, and report the differences.

Every rank writes a note before each call of ``torch.distributed``; the launcher compares the notes
while the ranks run. From a call to a finding:

1. In the rank, ``record.hooks`` intercepts a call from Python, ``record.kernels`` one from C++ on
   the CPU. ``record.flight`` reads those over NCCL from torch's flight recorder; ``flight`` has the
   readers of its entries.
2. ``record.recorder`` writes a note: ``record.calls`` extracts what must be equal on all ranks,
   ``record.frames`` finds the line. ``record.buffers`` watches the tensors on request.
3. ``notes`` defines the text of the note, and the shared memory that it is written to.
4. In the launcher, ``inspector`` reads this memory; ``note_files`` writes and reads files.
5. ``match.judge`` passes each note to ``match.matcher``, which matches the ranks' calls by
   ``match.rules``; ``match.shifts`` finds calls that match only by accident, and the one that a
   later error follows from.
6. ``match.judge`` decides when an error is certain, and ``match.findings`` describes it. The other
   rules, such as ``match.order`` and ``match.training_rule``, get each note for their warnings.
7. ``text`` and ``view`` show the finding, and ``timeline`` draws all calls.
"""
