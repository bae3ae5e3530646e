#include "kernels/large_pages.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <vector>

namespace clover::kernels {
namespace {

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t whole = 0, resident = 0;
  statm >> whole >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

at::Tensor numbers(int64_t count) {
  return zeros_in_large_pages({count}, at::kInt);
}

TEST(LargePages, HoldZerosOfAnySizeAndType) {
  for (const int64_t rows : {1, 100, 1000, 3000, 20000}) {
    const at::Tensor found = zeros_in_large_pages({rows, 257}, at::kBFloat16);
    EXPECT_EQ(found.sizes(), (at::IntArrayRef{rows, 257}));
    EXPECT_TRUE(found.is_contiguous());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found.const_data_ptr()) % 64, 0u);
    EXPECT_EQ(found.count_nonzero().item<int64_t>(), 0) << rows;
  }
  EXPECT_EQ(zeros_in_large_pages({0, 5}, at::kFloat).numel(), 0);
}

TEST(LargePages, NeighboursDoNotTouchEachOther) {
  std::vector<at::Tensor> held;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 40; ++i) {
      const int64_t count = (100 + 31 * i)
                            << 10;  // from 400 KB to 5 MB, and three that have pages of their own
      held.push_back(numbers(i % 13 == 0 ? 8 * count : count));
      ASSERT_EQ(held.back().count_nonzero().item<int64_t>(), 0);
      held.back().fill_(std::ssize(held));
    }
    for (size_t i = 0; i < held.size(); i += 2) held[i] = at::Tensor();  // makes room, or does not
    for (size_t i = 1; i < held.size(); i += 2) {
      if (!held[i].defined()) continue;
      ASSERT_TRUE(held[i].equal(at::full_like(held[i], static_cast<int64_t>(i + 1)))) << i;
    }
  }
}

TEST(LargePages, AreGivenBack) {
  const int64_t before = resident_bytes();
  for (int round = 0; round < 20; ++round) {
    std::vector<at::Tensor> held;
    for (int i = 0; i < 64; ++i) held.push_back(numbers(int64_t{1} << 19).fill_(1));  // 2 MB each
    held.push_back(numbers(int64_t{1} << 25).fill_(1));                               // 128 MB
    EXPECT_GT(resident_bytes() - before, int64_t{200} << 20);
  }
  EXPECT_LT(resident_bytes() - before, int64_t{100} << 20);
}

TEST(LargePages, MemoryNotTouchedIsNotTaken) {
  const int64_t before = resident_bytes();
  const at::Tensor large = zeros_in_large_pages({int64_t{4} << 30}, at::kByte);
  large[0] = 1;
  EXPECT_LT(resident_bytes() - before, int64_t{64} << 20);
}

}  // namespace
}  // namespace clover::kernels
