"""The history of performance: figures of many commits, and a site that shows them.

    python -m benchmarks.history run         compute missing figures of the last commits
    python -m benchmarks.history host        keep the times of this host for some commits
    python -m benchmarks.history publish     write asv's site
    python -m benchmarks.history check       fail if a deterministic figure became worse
    python -m benchmarks.history add         keep a run of benchmarks.compare or solvers on a GPU

The figures are kept in `results` as compressed result files of asv (`kept`). docs/developer/
read_the_history.rst explains how to read them.
"""
