#pragma once

#include <ATen/core/Tensor.h>

namespace clover::kernels {

/// Zeros of `sizes` on the CPU, for weights that every step streams: in pages of 2 MB where Linux grants them
/// (transparent huge pages, `madvise` or `always`; docs/decisions/0013). Tensors smaller than 16 MB share a
/// mapping of 32 MB, which is given back when all of them are gone. std::bad_alloc without memory.
at::Tensor zeros_in_large_pages(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace clover::kernels
