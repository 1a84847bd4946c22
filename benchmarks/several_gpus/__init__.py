"""Products of a group of GPUs of one host, beside NCCL and a product, and beside torch's own."""
