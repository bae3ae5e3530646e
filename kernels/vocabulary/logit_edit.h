#pragma once

#include <cstdint>

#include "kernels/op/host_device.h"

// Edits of single logits before a token is chosen: one formula for the CPU and the GPU.
namespace clover::kernels {

/// A logit x becomes p(x + bias) - subtracted, where p multiplies a negative number by `penalty` and divides
/// any other by it. A bias of -inf bans the token.
struct LogitEdit {
  int32_t id = 0;  // of the token
  float bias = 0, penalty = 1, subtracted = 0;
};
static_assert(sizeof(LogitEdit) == 4 * sizeof(int32_t));

/// A row of logits and its edits: [begin, end), which rows may share, and [own_begin, own_end), which belong
/// to this row alone.  Where both name a token, only the row's own edit is applied.
struct EditedRow {
  int32_t row = 0;
  int32_t begin = 0, end = 0;
  int32_t own_begin = 0, own_end = 0;
};
static_assert(sizeof(EditedRow) == 5 * sizeof(int32_t));

namespace {  // one copy in each file, because CPU files are compiled for different instruction sets

CLOVER_HOST_DEVICE float apply_edit(float x, const LogitEdit& edit) {
  const float biased = x + edit.bias;
  return (biased < 0 ? biased * edit.penalty : biased / edit.penalty) - edit.subtracted;
}

}  // namespace
}  // namespace clover::kernels
