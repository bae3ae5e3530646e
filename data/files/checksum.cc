#include "data/files/checksum.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "data/files/hash.h"

namespace clover::data {
namespace {

constexpr size_t block = size_t{1} << 18;

// Multiplying by an odd number is invertible, so different states or words never give the same result.
uint64_t mixed(uint64_t state, uint64_t word) {
  return std::rotl((state ^ word) * 0x9e3779b97f4a7c15ull, 31);
}

}  // namespace

uint64_t checksum(std::string_view bytes, uint64_t state) {
  const int64_t blocks = static_cast<int64_t>((bytes.size() + block - 1) / block);
  std::vector<uint64_t> each(blocks);
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) each[i] = xxh64(bytes.substr(i * block, block), 0);
  });
  state = mixed(state, bytes.size());
  for (const uint64_t one : each) state = mixed(state, one);
  return mixed(state, 0);
}

}  // namespace clover::data
