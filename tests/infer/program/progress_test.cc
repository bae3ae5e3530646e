#include "infer/program/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

namespace clover::infer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ProgressTest : public ::testing::Test {
 protected:
  ~ProgressTest() override { std::fclose(out_); }

  std::string written() {
    std::fflush(out_);
    std::string text(std::ftell(out_), '\0');
    std::rewind(out_);
    text.resize(std::fread(text.data(), 1, text.size(), out_));
    return text;
  }

  static size_t count(const std::string& text, char wanted) {
    return std::count(text.begin(), text.end(), wanted);
  }

  std::FILE* out_ = std::tmpfile();
  Progress::Clock::time_point start_ = Progress::Clock::now();
};

TEST_F(ProgressTest, RedrawsOneLineAtMostFiveTimesASecondOnATerminal) {
  Progress progress("batch", 100, 0, out_, true, start_);
  for (int i = 0; i <= 100; ++i) progress.update_at(start_ + milliseconds(10 * i), i, "9 tokens/s");
  EXPECT_EQ(count(written(), '\r'), 6u);  // at 0, 200, .. 1000 ms
  EXPECT_EQ(count(written(), '\n'), 0u);
  progress.finish_at(start_ + milliseconds(1010), "");
  const std::string text = written();
  EXPECT_EQ(count(text, '\n'), 1u);
  EXPECT_THAT(text, EndsWith("batch [####################]  100/100  9 tokens/s  0:01 elapsed\n"));
}

TEST_F(ProgressTest, ShowsBarElapsedAndTimeLeft) {
  Progress progress("batch", 100, 0, out_, true, start_);
  progress.update_at(start_, 0, "");
  progress.update_at(start_ + seconds(12), 30, "412 tokens/s");
  EXPECT_THAT(written(),
              EndsWith("batch [######--------------]  30/100  412 tokens/s  0:12 elapsed, 0:28 left"));
}

TEST_F(ProgressTest, TimeLeftOfAResumedJobCountsOnlyThisRun) {
  Progress progress("batch", 100, 80, out_, true, start_);
  progress.update_at(start_ + seconds(10), 90, "");
  EXPECT_THAT(written(), EndsWith("0:10 elapsed, 0:10 left"));
}

TEST_F(ProgressTest, WritesPlainLinesNowAndThenElsewhere) {
  Progress progress("fit", 1000, 0, out_, false, start_);
  for (int i = 0; i <= 40; ++i) progress.update_at(start_ + seconds(i), i, "loss 2.5");
  progress.finish_at(start_ + seconds(41), "loss 2.4");
  const std::string text = written();
  EXPECT_EQ(count(text, '\n'), 3u);  // at 15 s, 30 s and the end
  EXPECT_THAT(text, StartsWith("fit  15/1000  loss 2.5  0:15 elapsed, 16:25 left\n"));
  EXPECT_THAT(text, EndsWith("fit  40/1000  loss 2.4  0:41 elapsed\n"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST_F(ProgressTest, UnknownTotalHasNoBarAndNoTimeLeft) {
  Progress progress("prepare", 0, 0, out_, true, start_);
  progress.update_at(start_, 0, "");
  progress.update_at(start_ + seconds(1), 7, "");
  EXPECT_THAT(written(), EndsWith("prepare  7  0:01 elapsed"));
}

TEST_F(ProgressTest, LongLinesAreCutSoThatTheyCanBeRedrawn) {
  Progress progress("batch", 10, 0, out_, true, start_);
  progress.update_at(start_, 1, std::string(500, 'x'));
  EXPECT_LE(written().size(), 80u + std::string("\r\x1b[K").size());
}

TEST_F(ProgressTest, ClearMakesRoomAndTheNextUpdateDrawsAgain) {
  Progress progress("batch", 10, 0, out_, true, start_);
  progress.update_at(start_, 1, "");
  progress.clear();
  EXPECT_THAT(written(), EndsWith("\r\x1b[K"));
  progress.update_at(start_ + milliseconds(1), 2, "");
  EXPECT_THAT(written(), HasSubstr("2/10"));
}

TEST_F(ProgressTest, AnAbandonedLineIsEnded) {
  {
    Progress progress("batch", 10, 0, out_, true, start_);
    progress.update_at(start_, 1, "");
  }
  EXPECT_THAT(written(), EndsWith("\n"));
}

TEST(ClockText, ReadsAsPeopleWriteTime) {
  EXPECT_EQ(clock_text(7.4), "0:07");
  EXPECT_EQ(clock_text(754), "12:34");
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(clock_text(-1), "0:00");
}

}  // namespace
}  // namespace clover::infer
