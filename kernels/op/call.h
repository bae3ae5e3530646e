#pragma once

#include <cstdint>

#include "kernels/op/element.h"
#include "kernels/op/gpu_context.h"

// How an op is made: one struct, its call, is all that its parts know of each other.
//
//   op.h         the contract: meaning, shapes, dtypes, errors; and the call
//                    struct ScaleCall { float* x; const float* factors; int64_t rows, width; };
//                    void run_on_cpu(const ScaleCall& call);
//                    CLOVER_GPU_KERNEL void run_on_gpu(const ScaleCall& call, const GpuContext& context);
//   op.cc        checks the tensors, fills in the call and starts it where they lie: run(name, x, call)
//   op_cpu.cc    run_on_cpu
//   op_cuda.cu   run_on_gpu: launches kernels on context.stream
//   op_simd.cc   loops worth compiling once for each instruction family (kernels/cpu/family.h)
//
// CMake finds these files by their suffix; no other file names an op.  A call holds raw pointers, for neither
// nvcc nor files compiled for wide instruction sets see LibTorch.  So that they can include op.h it only
// declares at::Tensor; an op whose arguments are structs of tensors has its call in a header of its own,
// op_call.h.
//
// A build without CUDA compiles no .cu file: there `run_on_gpu` is a null pointer unless the tests' emulated
// GPU defines it, and GpuContext says that the kernel is missing.
namespace at {
class Tensor;
}  // namespace at

#if CLOVER_WITH_CUDA
#define CLOVER_GPU_KERNEL
#else
#define CLOVER_GPU_KERNEL __attribute__((weak))
#endif
