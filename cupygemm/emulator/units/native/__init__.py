"""Native forms of ALU instructions: which C function executes each of them, on which operands."""
