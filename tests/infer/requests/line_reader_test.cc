#include "infer/requests/line_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/files/error.h"
#include "tests/support/temporary_folder.h"

namespace clover::infer {
namespace {

TEST(LineReader, ReadsLinesWithAnyEndAndKeepsMemoryBounded) {
  const test::TemporaryFolder folder;
  const auto file = folder.write("t", "\xEF\xBB\xBFone\r\n\n" + std::string(1 << 20, 'x') + "\nlast");
  LineReader reader(file, 1000);
  std::string line;
  ASSERT_TRUE(reader.next(line));
  EXPECT_EQ(line, "one");
  ASSERT_TRUE(reader.next(line));
  EXPECT_TRUE(is_blank(line));
  ASSERT_TRUE(reader.next(line));
  EXPECT_TRUE(reader.too_long());
  EXPECT_EQ(line.size(), 1000u);
  ASSERT_TRUE(reader.next(line));
  EXPECT_EQ(line, "last");
  EXPECT_EQ(reader.number(), 4);
  EXPECT_FALSE(reader.too_long());
  EXPECT_FALSE(reader.has_line_feed());
  EXPECT_FALSE(reader.next(line));
  EXPECT_EQ(summarise_file(file).lines, 4);
  EXPECT_EQ(summarise_file(file).filled_lines, 3);
}

// Ranks know from it that all lines are answered.
TEST(LineReader, FilledLinesAreThoseThatAreNotBlank) {
  const test::TemporaryFolder folder;
  for (const std::string& text :
       {std::string("\xEF\xBB\xBF\n{}\n \t\r\n"), std::string("\0\n", 2), std::string("\xEF\xBB\xBF"),
        std::string("\xEF\xBB"), std::string("\xEF\xBB\xBF\xEF\xBB\xBF"), std::string()}) {
    const auto file = folder.write("t", text);
    LineReader reader(file, 1000);
    int64_t filled = 0;
    for (std::string line; reader.next(line);) filled += !is_blank(line);
    EXPECT_EQ(summarise_file(file).filled_lines, filled) << text;
    EXPECT_EQ(summarise_file(file).lines, reader.number()) << text;
  }
}

TEST(LineReader, RefusesFoldersAndMissingFiles) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(LineReader{folder.path()}, data::InputError);
  EXPECT_THROW(LineReader{folder / "none"}, data::InputError);
  EXPECT_THROW(summarise_file(folder.path()), data::InputError);
  EXPECT_THROW(summarise_file(folder / "none"), data::InputError);
}

TEST(LineReader, HashesEveryByte) {
  const test::TemporaryFolder folder;
  const std::string one = summarise_file(folder.write("a", "x\ny\n")).hash;
  EXPECT_EQ(summarise_file(folder.write("b", "x\ny\n")).hash, one);
  EXPECT_NE(summarise_file(folder.write("c", "x\nz\n")).hash, one);
}

}  // namespace
}  // namespace clover::infer
