#include <c10/util/Exception.h>

#include <array>

#include "kernels/vocabulary/sample.h"

namespace clover::kernels {
namespace {

using Counter = std::array<uint32_t, 4>;

Counter philox4x32_10(Counter counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t low = uint64_t{0xD2511F53} * counter[0];
    const uint64_t high = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(high >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(high),
               static_cast<uint32_t>(low >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(low)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

}  // namespace

double philox_uniform(uint64_t seed, uint64_t request, uint64_t choice, uint64_t position) {
  TORCH_CHECK(choice >> 32 == 0 && position >> 32 == 0, "philox_uniform: choice ", choice, " and position ",
              position, " must both be below 2^32, for the counter has 128 bits and request takes 64.");
  const Counter random = philox4x32_10({static_cast<uint32_t>(request), static_cast<uint32_t>(request >> 32),
                                        static_cast<uint32_t>(choice), static_cast<uint32_t>(position)},
                                       static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  const uint64_t bits = (uint64_t{random[0]} << 32 | random[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace clover::kernels
