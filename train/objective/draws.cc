#include "train/objective/draws.h"

#include <c10/util/Exception.h>

#include "kernels/vocabulary/sample.h"

namespace clover::train {

double Draws::uniform(Purpose purpose, int64_t sample, int64_t t, int64_t depth, int64_t index) const {
  const uint64_t number = static_cast<uint64_t>(samples[sample]);
  TORCH_CHECK(number >> 32 == 0 && depth < (1 << 16) && index < (1 << 15), "random number ", index,
              " of sample ", number, " at depth ", depth);
  const uint64_t counter = static_cast<uint64_t>(purpose) << 31 | static_cast<uint64_t>(index) << 16 |
                           static_cast<uint64_t>(depth);
  // Argument `choice` is t + 1, since the data order (data_order.cc) draws with choice 0.
  return kernels::philox_uniform(seed, static_cast<uint64_t>(step) << 32 | number,
                                 static_cast<uint64_t>(t) + 1, counter);
}

}  // namespace clover::train
