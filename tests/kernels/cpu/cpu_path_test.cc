#include "kernels/cpu/cpu_path.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>

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

// Where the machine has AVX2, the portable loop is its twin to the bit.
TEST(CpuPath, PortableAndAvx2MultiplyToTheSameBits) {
  const auto paths = available_cpu_paths();
  if (std::find(paths.begin(), paths.end(), CpuPath::avx2) == paths.end()) GTEST_SKIP() << "no AVX2 here";
  const CpuPath before = cpu_path();
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::randn({9, 77}).to(type);
    const PackedWeight packed = PackedWeight::pack({at::randn({50, 77}).to(type)});
    const auto run = [&] {
      at::Tensor y = at::empty({9, 50});
      linear(x, packed, {}, y);
      return y;
    };
    set_cpu_path(CpuPath::portable);
    const at::Tensor expected = run();
    set_cpu_path(CpuPath::avx2);
    EXPECT_TRUE(same_bits(run(), expected)) << type;
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
