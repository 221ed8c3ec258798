"""Tests of the trainer run with one thread: more only wait for each other on a busy machine."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
