#pragma once

#include <ATen/core/Tensor.h>

namespace clover::kernels {

/// Zeros of `sizes` on the CPU, for what steps read from end to end: where Linux grants it (transparent huge
/// pages, `madvise` or `always`), in pages of 2 MB.  Looking up addresses of pages of 4 KB takes a virtual
/// machine up to 8 % of a step (docs/performance.md).  Small ones share their pages, and give them back when
/// all of them are gone.  c10::Error as at::zeros.
at::Tensor zeros_in_large_pages(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace clover::kernels
