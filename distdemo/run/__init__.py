"""A program of the user's own on every rank.

- ``run_program(rank, program, pdb)``: what every rank runs (``program``)
- ``run_whole``, ``call_function``: a whole script or module, or one function of it
- ``preload(program)``: in the launcher, what of torch the program will import, once for all ranks
"""
