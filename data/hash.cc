#include "data/hash.h"

namespace clover::data {

uint64_t fnv1a(std::string_view bytes, uint64_t state) {
  constexpr uint64_t prime = 1099511628211ull;
  for (char c : bytes) {
    state ^= static_cast<unsigned char>(c);
    state *= prime;
  }
  return state;
}

std::string hex(uint64_t hash) {
  std::string digits(16, '0');
  for (size_t i = 16; i-- > 0; hash >>= 4) digits[i] = "0123456789abcdef"[hash & 15];
  return digits;
}

}  // namespace clover::data
