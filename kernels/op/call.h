#pragma once

#include <cstdint>

#include "kernels/op/element.h"
#include "kernels/op/gpu_context.h"

// How an op is built.  Its files share one struct, the call, and nothing else.  For an op called `op` they
// are:
//
//   op.h         declares the op for its users (meaning, shapes, dtypes, errors), and the call
//                    struct ScaleCall { float* x; const float* factors; int64_t rows, width; };
//                    void run_on_cpu(const ScaleCall& call);
//                    CLOVER_GPU_KERNEL void run_on_gpu(const ScaleCall& call, const GpuContext& context);
//   op.cc        checks the tensors, fills in the call and runs it on their device: run(name, x, call)
//   op_cpu.cc    run_on_cpu
//   op_cuda.cu   run_on_gpu: launches kernels on context.stream
//   op_simd.cc   loops that are compiled once for each instruction family (kernels/cpu/family.h)
//
// CMake finds these files by their suffix, so a new op needs no change elsewhere.  A call holds raw pointers,
// because .cu and *_simd.cc files do not include LibTorch's headers.  They do include op.h, which therefore
// only declares at::Tensor.  An op whose arguments are structs of tensors has its call in a header of its
// own, op_call.h.
//
// A build without CUDA compiles no .cu file.  There `run_on_gpu` is a weak symbol and null, unless the
// emulated GPU of the tests defines it; GpuContext's constructor throws before anybody calls it.
namespace at {
class Tensor;
}  // namespace at

#if CLOVER_WITH_CUDA
#define CLOVER_GPU_KERNEL
#else
#define CLOVER_GPU_KERNEL __attribute__((weak))
#endif
