#pragma once

// Marks a function that both CPU code and CUDA kernels call; it is always inlined.
#if defined(__CUDACC__)
#define CLOVER_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define CLOVER_HOST_DEVICE inline __attribute__((always_inline))
#endif
