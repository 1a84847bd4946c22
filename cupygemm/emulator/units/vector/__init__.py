"""The vector ALU: VOP1, VOP2, VOP3, VOP3P and VOPC."""
