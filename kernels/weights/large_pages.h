#pragma once

#include <ATen/core/Tensor.h>

namespace clover::kernels {

/// A CPU tensor of zeros in pages of 2 MB, for weights that every step reads. Linux grants such pages if
/// transparent huge pages are set to `madvise` or `always` (docs/decisions/0013); otherwise pages are small.
/// Tensors up to 16 MB share mappings of 32 MB; a mapping is freed with its last tensor. Tensors below 256 KB
/// get ordinary memory. std::bad_alloc if memory is lacking.
at::Tensor zeros_in_large_pages(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace clover::kernels
