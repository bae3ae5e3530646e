#include "data/checksum.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace clover::data {
namespace {

constexpr size_t stride = 64, block = size_t{1} << 18;

// Odd, so that multiplying loses nothing: every step is one to one in the state and in the word.
constexpr uint64_t odd = 0x9e3779b97f4a7c15ull;

uint64_t mixed(uint64_t state, uint64_t word) {
  return std::rotl((state ^ word) * odd, 31);
}

uint64_t word_at(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

/// Lanes of their own, in registers: a processor multiplies several at once.
uint64_t of_block(std::string_view bytes) {
  uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8;
  const auto take = [&](const char* at) {
    a = mixed(a, word_at(at)), b = mixed(b, word_at(at + 8));
    c = mixed(c, word_at(at + 16)), d = mixed(d, word_at(at + 24));
    e = mixed(e, word_at(at + 32)), f = mixed(f, word_at(at + 40));
    g = mixed(g, word_at(at + 48)), h = mixed(h, word_at(at + 56));
  };
  size_t at = 0;
  for (; at + stride <= bytes.size(); at += stride) take(bytes.data() + at);
  char rest[stride] = {};
  if (at < bytes.size()) std::memcpy(rest, bytes.data() + at, bytes.size() - at);
  take(rest);
  uint64_t all = bytes.size();
  for (const uint64_t lane : {a, b, c, d, e, f, g, h}) all = mixed(all, lane);
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
