"""How is a model trained by several ranks? The algorithms that the chapters build, one module a kind.

Each is pure `torch.distributed` and imports nothing else of ours, so it runs wherever a process group does.
"""
