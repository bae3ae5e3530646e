"""Modules of scripts/measure_gpu.py (parts, programs, tables) and scripts/gpu_kernels.py (machine_code)."""
