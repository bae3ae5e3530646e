#pragma once

#if !defined(CLOVER_CUDA_EMULATION)
#include <cuda_runtime_api.h>
#endif

namespace clover::kernels::cuda {

#if defined(CLOVER_CUDA_EMULATION)
using Stream = void*;
#else
using Stream = cudaStream_t;
#endif

/// c10::Error: the kernel `name` could not be started (defined in cuda.cc, for .cu files know no tensors).
[[noreturn]] void launch_failed(const char* name, const char* reason);

}  // namespace clover::kernels::cuda
