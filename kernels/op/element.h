#pragma once

namespace clover::kernels {

/// Number types that kernels read and write.
enum class Element { fp32, bf16, fp16 };

}  // namespace clover::kernels
