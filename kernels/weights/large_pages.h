#pragma once

#include <ATen/core/Tensor.h>

namespace clover::kernels {

/// Zeros of `sizes` on the CPU, for what steps read from end to end: where Linux grants it (transparent huge
/// pages, `madvise` or `always`), in pages of 2 MB (docs/decisions/0013).  What is smaller than 16 MB shares
/// a mapping of 32 MB, which is given back when all of it is gone.  std::bad_alloc without memory.
at::Tensor zeros_in_large_pages(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace clover::kernels
