#include "data/files/checksum.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "data/files/hash.h"

namespace clover::data {
namespace {

// Each block of this size is hashed by one thread.
constexpr size_t block_bytes = size_t{1} << 18;

// Multiplying by an odd number is invertible, so different states or words never give the same result.
uint64_t mixed(uint64_t state, uint64_t word) {
  return std::rotl((state ^ word) * 0x9e3779b97f4a7c15ull, 31);
}

}  // namespace

uint64_t checksum(std::string_view bytes, uint64_t state) {
  const int64_t blocks = static_cast<int64_t>((bytes.size() + block_bytes - 1) / block_bytes);
  std::vector<uint64_t> block_hashes(blocks);
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      block_hashes[i] = xxh64(bytes.substr(i * block_bytes, block_bytes), 0);
  });
  state = mixed(state, bytes.size());
  for (const uint64_t hash : block_hashes) state = mixed(state, hash);
  return mixed(state, 0);
}

}  // namespace clover::data
