"""The matrix unit: MFMA, and moves between VGPRs and AGPRs."""
