#pragma once

#include <cstdint>

#include "kernels/op/host_device.h"

namespace clover::kernels {

/// Number types that kernels read and write.
enum class Element { fp32, bf16, fp16 };

/// Bytes of one number.
CLOVER_HOST_DEVICE int64_t bytes_of(Element element) {
  return element == Element::fp32 ? 4 : 2;
}

}  // namespace clover::kernels
