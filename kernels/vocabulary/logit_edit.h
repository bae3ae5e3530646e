#pragma once

#include <cstdint>

#include "kernels/op/host_device.h"

// Edits of single logits before a token is chosen: one formula for the CPU and the GPU.
namespace clover::kernels {

/// A logit x becomes p(x + bias) - taken, where p multiplies a negative number by `penalty` and divides any
/// other by it. A bias of -inf bans the token.
struct LogitEdit {
  int32_t id = 0;
  float bias = 0, penalty = 1, taken = 0;
};
static_assert(sizeof(LogitEdit) == 4 * sizeof(int32_t));

/// A row of logits that is edited: by edits [begin, end), which rows may share, and by [own_begin, own_end),
/// which replace those of the same tokens.
struct EditedRow {
  int32_t row = 0;
  int32_t begin = 0, end = 0;
  int32_t own_begin = 0, own_end = 0;
};
static_assert(sizeof(EditedRow) == 5 * sizeof(int32_t));

namespace {  // a copy in each file: code for one may not be linked into the other's

CLOVER_HOST_DEVICE float edited(float x, const LogitEdit& edit) {
  const float biased = x + edit.bias;
  return (biased < 0 ? biased * edit.penalty : biased / edit.penalty) - edit.taken;
}

}  // namespace
}  // namespace clover::kernels
