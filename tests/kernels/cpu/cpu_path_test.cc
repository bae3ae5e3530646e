#include "kernels/cpu/cpu_path.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "kernels/linear/linear.h"
#include "tests/kernels/paths.h"

namespace clover::kernels {
namespace {

TEST(CpuPath, PortableIsAlwaysThereAndFirst) {
  const auto paths = available_cpu_paths();
  ASSERT_FALSE(paths.empty());
  EXPECT_EQ(paths.front(), CpuPath::portable);
}

TEST(CpuPath, FollowsTheChoice) {
  on_every_path([] {
    const std::string chosen = to_string(cpu_path());
    EXPECT_NE(chosen, "unknown");
  });
  set_cpu_path(CpuPath::portable);
  EXPECT_EQ(cpu_path(), CpuPath::portable);
  set_cpu_path(available_cpu_paths().back());
  EXPECT_EQ(cpu_path(), available_cpu_paths().back());
}

TEST(CpuPath, RefusesWhatTheMachineLacks) {
  if (available_cpu_paths().back() == CpuPath::amx) GTEST_SKIP() << "this machine has every family";
  const std::string error = error_of([] { set_cpu_path(CpuPath::amx); });
  EXPECT_NE(error.find("amx needs instructions that this machine lacks: choose one of portable"),
            std::string::npos)
      << error;
}

/// What linear() gives on a path for nine (two tiles of AVX2, one of AVX-512) and 30 rows.
std::vector<at::Tensor> products_on(CpuPath path, at::ScalarType type) {
  set_cpu_path(path);
  at::manual_seed(7);
  std::vector<at::Tensor> results;
  for (const int64_t rows : {1, 9, 30}) {
    const at::Tensor x = at::randn({rows, 77}).to(type);
    results.push_back(at::empty({rows, 150}));
    linear(x, PackedWeight::pack({at::randn({150, 77}).to(type)}), {}, results.back());
  }
  return results;
}

// Families without VDPBF16PS compute the same chain of fused multiply-adds.
TEST(CpuPath, PortableAvx2AndAvx512MultiplyToTheSameBits) {
  const auto paths = available_cpu_paths();
  if (paths.size() == 1) GTEST_SKIP() << "this machine has the portable path alone";
  const CpuPath before = cpu_path();
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const std::vector<at::Tensor> expected = products_on(CpuPath::portable, type);
    for (const CpuPath path : {CpuPath::avx2, CpuPath::avx512}) {
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) continue;
      const std::vector<at::Tensor> found = products_on(path, type);
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(same_bits(found[i], expected[i])) << to_string(path) << ", " << type << ", case " << i;
    }
  }
  set_cpu_path(before);
}

// The variable is read once a process, hence in processes of their own.
void choose_and_exit(const char* name) {
  setenv("CLOVER_CPU_PATH", name, 1);
  std::string said;
  try {
    said = to_string(cpu_path());
  } catch (const c10::Error& error) {
    said = error.what_without_backtrace();
  }
  std::fprintf(stderr, "%s\n", said.c_str());
  std::exit(0);
}

TEST(CpuPathDeathTest, TheEnvironmentChooses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(choose_and_exit("portable"), testing::ExitedWithCode(0), "^portable");
  EXPECT_EXIT(choose_and_exit("sse9"), testing::ExitedWithCode(0),
              "CLOVER_CPU_PATH is 'sse9', expected one of portable");
}

}  // namespace
}  // namespace clover::kernels
