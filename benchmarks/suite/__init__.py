"""The benchmark suite. The name of a benchmark says what kind of figure it is.

    Computed..., Wheel       read from code objects and from the wheel         deterministic
    Emulated, Epilogue       counted by the emulated device                    deterministic
    Modelled, Calibration    cycles of the timing model, and its error         deterministic
    Measured...              what runs on a GPU gave, entered by commit
    Host...                  times of this machine, which say nothing about a GPU

``make bench ASV_ARGS="-b Computed"`` runs one kind. docs/developer/read_the_history.rst says how to
read the figures and how to add one. The suite runs with the package of any commit (`commit`).
"""
