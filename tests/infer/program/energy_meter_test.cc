#include "infer/program/energy_meter.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace clover::infer {
namespace {

class EnergyMeterTest : public testing::Test {
 protected:
  void write_zone(const std::string& name, const std::string& what, int64_t microjoules) {
    std::filesystem::create_directories(powercap_ / name);
    folder_.write("powercap/" + name + "/name", what + "\n");
    folder_.write("powercap/" + name + "/max_energy_range_uj", "10000000\n");
    folder_.write("powercap/" + name + "/energy_uj", std::to_string(microjoules) + "\n");
  }

  test::TemporaryFolder folder_;
  std::filesystem::path powercap_ = folder_ / "powercap";
};

TEST_F(EnergyMeterTest, AddsUpPackagesAndFollowsCountersThatBeginAgain) {
  write_zone("intel-rapl:0", "package-0", 1'000'000);
  write_zone("intel-rapl:1", "package-1", 9'000'000);
  write_zone("intel-rapl:0:0", "core", 0);          // part of a package
  write_zone("intel-rapl:2", "psys", 0);            // holds the packages
  write_zone("intel-rapl-mmio:0", "package-0", 0);  // the same package by another way
  EnergyMeter meter(at::kCPU, powercap_);
  EXPECT_EQ(meter.joules(), 0);
  write_zone("intel-rapl:0", "package-0", 3'500'000);
  write_zone("intel-rapl:1", "package-1", 500'000);  // 1 J to the end of its range, and half a joule more
  for (const char* other : {"intel-rapl:0:0", "intel-rapl:2", "intel-rapl-mmio:0"})
    folder_.write(std::string("powercap/") + other + "/energy_uj", "7000000\n");
  EXPECT_EQ(meter.joules(std::chrono::seconds(1000)), 0);  // as it was read a moment ago
  EXPECT_DOUBLE_EQ(meter.joules(), 4.0);
  EXPECT_DOUBLE_EQ(meter.joules(), 4.0);
}

TEST_F(EnergyMeterTest, TellsNothingWhereTheMachineDoesNot) {
  EXPECT_EQ(EnergyMeter(at::kCPU, powercap_).joules(), 0);
  std::filesystem::create_directories(powercap_ / "intel-rapl:0");
  EXPECT_EQ(EnergyMeter(at::kCPU, powercap_).joules(), 0);
}

}  // namespace
}  // namespace clover::infer
