#pragma once

#include <cstdint>

#include "kernels/op/host_device.h"

namespace clover::kernels {

/// Outputs of a panel of PackedWeight.
constexpr int panel_outputs = 16;
CLOVER_HOST_DEVICE int64_t panels_of(int64_t outputs) {
  return (outputs + panel_outputs - 1) / panel_outputs;
}

}  // namespace clover::kernels
