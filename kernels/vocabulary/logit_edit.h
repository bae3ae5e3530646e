#pragma once

#include <cstdint>

// What happens to single logits before a token is chosen by them: one answer for the host and the device.
namespace clover::kernels {

/// A logit x becomes p(x + bias) - taken, where p multiplies what is below 0 by `penalty` and divides the
/// rest by it.  A bias of -inf bans the token.
struct LogitEdit {
  int32_t id = 0;
  float bias = 0, penalty = 1, taken = 0;
};

/// Edits [begin, end), which rows may share, and [own_begin, own_end), which stand in for those of the same
/// tokens.
struct EditedRow {
  int32_t row = 0;
  int32_t begin = 0, end = 0;
  int32_t own_begin = 0, own_end = 0;
};

namespace {  // a copy in each file: code for one may not be linked into the other's

#if defined(__CUDACC__)
#define CLOVER_EDITS_ANYWHERE __host__ __device__ __forceinline__
#else
#define CLOVER_EDITS_ANYWHERE inline __attribute__((always_inline))
#endif

CLOVER_EDITS_ANYWHERE float edited(float x, const LogitEdit& edit) {
  const float biased = x + edit.bias;
  return (biased < 0 ? biased * edit.penalty : biased / edit.penalty) - edit.taken;
}

}  // namespace
}  // namespace clover::kernels
