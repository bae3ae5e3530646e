"""Modules of scripts/measure_gpu.py (parts, training, programs, tables) and scripts/gpu_kernels.py (machine_code)."""
