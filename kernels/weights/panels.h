#pragma once

#include <cstdint>

#include "kernels/op/host_device.h"

namespace clover::kernels {

/// Outputs of a panel of PackedWeight (packed_weight.h).
constexpr int panel_outputs = 16;
/// Panels of a weight with `outputs` outputs.
CLOVER_HOST_DEVICE int64_t panels_of(int64_t outputs) {
  return (outputs + panel_outputs - 1) / panel_outputs;
}

}  // namespace clover::kernels
