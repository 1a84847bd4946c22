"""The modelled time of a kernel, by which configurations are ranked."""
