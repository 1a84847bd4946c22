"""The scalar unit: SOP1, SOP2, SOPC, SOPK and SOPP."""
