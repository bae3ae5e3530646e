#include "data/checksum.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace clover::data {
namespace {

constexpr size_t lanes = 8, stride = lanes * sizeof(uint64_t), block = size_t{1} << 18;

// Odd, so that multiplying loses nothing: every step is one to one in the state and in the word.
constexpr uint64_t odd = 0x9e3779b97f4a7c15ull;

uint64_t mixed(uint64_t state, uint64_t word) {
  return std::rotl((state ^ word) * odd, 31);
}

void take(const char* bytes, uint64_t (&state)[lanes]) {
  uint64_t words[lanes];
  std::memcpy(words, bytes, stride);
  for (size_t i = 0; i < lanes; ++i) state[i] = mixed(state[i], words[i]);
}

/// Lanes of their own: a processor multiplies several at once.
uint64_t of_block(std::string_view bytes) {
  uint64_t state[lanes];
  for (size_t i = 0; i < lanes; ++i) state[i] = i + 1;
  size_t at = 0;
  for (; at + stride <= bytes.size(); at += stride) take(bytes.data() + at, state);
  char rest[stride] = {};
  if (at < bytes.size()) std::memcpy(rest, bytes.data() + at, bytes.size() - at);
  take(rest, state);
  uint64_t all = bytes.size();
  for (const uint64_t lane : state) all = mixed(all, lane);
  return all;
}

}  // namespace

uint64_t checksum(std::string_view bytes, uint64_t state) {
  const int64_t blocks = static_cast<int64_t>((bytes.size() + block - 1) / block);
  std::vector<uint64_t> each(blocks);
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) each[i] = of_block(bytes.substr(i * block, block));
  });
  state = mixed(state, bytes.size());
  for (const uint64_t one : each) state = mixed(state, one);
  return mixed(state, 0);
}

}  // namespace clover::data
