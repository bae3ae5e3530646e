#include "data/files/unfinished_folder.h"

#include <gtest/gtest.h>

#include "data/files/error.h"
#include "tests/support/temporary_folder.h"

namespace clover::data {
namespace {

namespace fs = std::filesystem;

// The name of a dead process's folder: this process id is larger than any that the system gives.
constexpr const char* half_written = ".place.new.999999999";
constexpr const char* moved_away = ".place.old.999999999";

class UnfinishedFolderTest : public testing::Test {
 protected:
  static void write(const fs::path& folder, const std::string& text) {
    fs::create_directories(folder);
    std::ofstream(folder / "file") << text;
  }
  /// How many entries lie beside the place, hidden ones included.
  int64_t entries() const { return std::distance(fs::directory_iterator(temporary_.path()), {}); }

  const test::TemporaryFolder temporary_;
  const fs::path place_ = temporary_ / "place";
};

TEST_F(UnfinishedFolderTest, TakesThePlaceOfAnOlderOneWhole) {
  write(place_, "old");
  {
    UnfinishedFolder fresh(place_);
    write(fresh.path(), "new");
    EXPECT_EQ(test::text_of(place_ / "file"), "old");
    fresh.finish();
  }
  EXPECT_EQ(test::text_of(place_ / "file"), "new");
  EXPECT_EQ(entries(), 1);
}

TEST_F(UnfinishedFolderTest, IsGoneWhenItsMakerFails) {
  write(place_, "old");
  { write(UnfinishedFolder(place_).path(), "new"); }
  EXPECT_EQ(test::text_of(place_ / "file"), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(UnfinishedFolderTest, ASlashAtTheEndOfTheNameMakesNoDifference) {
  for (const char* end : {"/", "//", "/."}) {
    UnfinishedFolder fresh(place_.string() + end);
    write(fresh.path(), end);
    fresh.finish();
    EXPECT_EQ(test::text_of(place_ / "file"), end);
    EXPECT_EQ(entries(), 1);
  }
}

TEST_F(UnfinishedFolderTest, RefusesAPlaceThatCannotBeWritten) {
  temporary_.write("file", "");
  EXPECT_THROW(UnfinishedFolder(temporary_ / "file" / "place"), InputError);
}

TEST_F(UnfinishedFolderTest, WhatKilledProcessesLeftIsRemovedOrComesBack) {
  write(temporary_ / half_written, "half");
  write(temporary_ / moved_away, "only copy");
  write(temporary_ / ".place.new.keep", "somebody else's");
  remove_unfinished(place_);
  EXPECT_EQ(test::text_of(place_ / "file"), "only copy");
  EXPECT_EQ(entries(), 2);
  write(temporary_ / moved_away, "older");
  remove_unfinished(place_);
  EXPECT_EQ(test::text_of(place_ / "file"), "only copy");
  EXPECT_EQ(entries(), 2);
}

}  // namespace
}  // namespace clover::data
