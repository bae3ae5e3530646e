#include "kernels/weights/large_pages.h"

#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace clover::kernels {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool shares = false;  // small ones are LibTorch's, so that reading beyond them is seen
#else
constexpr bool shares = true;
#endif

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t whole = 0, resident = 0;
  statm >> whole >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

/// Whether Linux was asked for large pages at `address`.
bool asked_for_large_pages(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      here = begin <= reinterpret_cast<uintptr_t>(address) && reinterpret_cast<uintptr_t>(address) < end;
    if (here && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

at::Tensor numbers(int64_t count) {
  return zeros_in_large_pages({count}, at::kInt);
}

TEST(LargePages, HoldZerosOfAnySizeAndType) {
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    for (const int64_t rows : {1, 100, 1000, 3000, 20000, 40000}) {
      const at::Tensor found = zeros_in_large_pages({rows, 257}, type);
      EXPECT_EQ(found.sizes(), (at::IntArrayRef{rows, 257}));
      EXPECT_EQ(found.scalar_type(), type);
      EXPECT_TRUE(found.is_contiguous());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(found.const_data_ptr()) % 64, 0u);
      EXPECT_EQ(found.count_nonzero().item<int64_t>(), 0) << rows;
    }
  }
  EXPECT_EQ(zeros_in_large_pages({0, 5}, at::kFloat).numel(), 0);
}

TEST(LargePages, AreAskedFor) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage"))
    GTEST_SKIP() << "this Linux has no transparent huge pages";
  const at::Tensor large = numbers(int64_t{5} << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.const_data_ptr()) % (2 << 20), 0u);
  EXPECT_TRUE(asked_for_large_pages(large.const_data_ptr()));
  if (!shares) return;
  const at::Tensor first = numbers(100000), second = numbers(100000);
  EXPECT_TRUE(asked_for_large_pages(first.const_data_ptr()));
  // Side by side, or a weight smaller than a page would never lie in one.
  EXPECT_EQ(second.const_data_ptr<int>() - first.const_data_ptr<int>(), 100000);
}

TEST(LargePages, NeighboursDoNotTouchEachOther) {
  std::vector<at::Tensor> held;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 40; ++i) {
      const int64_t count = (100 + 31 * i) << 10;  // 400 KB to 5 MB, and three mappings of their own
      held.push_back(numbers(i % 13 == 0 && i > 0 ? 9 * count : count));
      ASSERT_EQ(held.back().count_nonzero().item<int64_t>(), 0);
      held.back().fill_(std::ssize(held));
    }
    for (size_t i = 0; i < held.size(); i += 2) held[i] = at::Tensor();  // makes room, or does not
    for (size_t i = 1; i < held.size(); i += 2)
      ASSERT_TRUE(held[i].equal(at::full_like(held[i], static_cast<int64_t>(i + 1)))) << i;
  }
}

TEST(LargePages, AreGivenBack) {
  if (!shares) GTEST_SKIP() << "AddressSanitizer keeps what is given back";
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
  const at::Tensor large = zeros_in_large_pages({int64_t{1} << 30}, at::kByte);
  large[0] = 1;
  EXPECT_LT(resident_bytes() - before, int64_t{64} << 20);
}

}  // namespace
}  // namespace clover::kernels
