#include "infer/program/rank.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "data/files/error.h"

namespace clover::infer {
namespace {

TEST(LauncherRank, IsReadFromTorchrunAndSlurm) {
  const auto set = [](const char* name, const char* value) {
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  };
  const auto with = [&](const char* rank, const char* size, const char* proc, const char* tasks) {
    set("RANK", rank), set("WORLD_SIZE", size), set("SLURM_PROCID", proc), set("SLURM_STEP_NUM_TASKS", tasks);
    return Rank::from_environment();
  };
  EXPECT_EQ(with(nullptr, nullptr, nullptr, nullptr).count, 1);
  EXPECT_EQ(with("2", "4", nullptr, nullptr).number, 2);
  EXPECT_EQ(with(nullptr, nullptr, "5", "8").count, 8);
  EXPECT_EQ(with("1", "2", "5", "8").number, 1);  // torchrun under Slurm
  EXPECT_THROW(with("4", "4", nullptr, nullptr), data::InputError);
  EXPECT_THROW(with("one", "4", nullptr, nullptr), data::InputError);
  EXPECT_THROW(with("-1", "4", nullptr, nullptr), data::InputError);
  with(nullptr, nullptr, nullptr, nullptr);
}

}  // namespace
}  // namespace clover::infer
