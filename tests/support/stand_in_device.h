#pragma once

#include <c10/core/Device.h>

namespace clover::test {

/// A device that is not the CPU, for machines without a GPU: its tensors lie in ordinary memory, but ATen
/// holds them to be elsewhere, and an operator that is given tensors of both kinds throws, as on a GPU.  The
/// emulated CUDA kernels (tests/support/cuda_emulation.h) work on them.  ATen's own operators run on the CPU
/// behind it.
at::Device stand_in_device();

/// How often tensors were copied from it to the CPU so far: each would wait for a GPU.
int64_t copies_from_stand_in();

}  // namespace clover::test
