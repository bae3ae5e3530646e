#pragma once

#include "kernels/body/lanes.h"

namespace clover::kernels::cpu {
namespace {

/// Adds the start value and writes eight outputs of one row.
CLOVER_INLINE void finish(const LinearWork& call, int64_t row, int64_t output, F8 sum) {
  const int64_t count = call.outputs - output < 8 ? call.outputs - output : 8;
  if (count <= 0) return;
  float* to = call.y + row * call.outputs + output;
  const float* start = call.accumulate ? to : call.bias != nullptr ? call.bias + output : nullptr;
  if (count == 8) {
    store8(to, start != nullptr ? load8(start) + sum : sum);
  } else {
    store_part(to, count, start != nullptr ? load_part(start, count) + sum : sum);
  }
}

/// The same for a panel, sixteen outputs.
CLOVER_INLINE void finish_panel(const LinearWork& call, int64_t row, int64_t output, F16 sum) {
  if (output + 16 > call.outputs) {
    finish(call, row, output, lower_half(sum));
    finish(call, row, output + 8, upper_half(sum));
    return;
  }
  float* to = call.y + row * call.outputs + output;
  const float* start = call.accumulate ? to : call.bias != nullptr ? call.bias + output : nullptr;
  store_line(to, start != nullptr ? load_line<F16>(start) + sum : sum);
}

}  // namespace
}  // namespace clover::kernels::cpu
