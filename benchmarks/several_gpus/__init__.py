"""Compare products of a group of GPUs of one host with NCCL and a product, and with torch."""
