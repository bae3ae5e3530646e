#include "data/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "data/hash.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::data {
namespace {

using test::input_error;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FilesTest : public ::testing::Test {
 protected:
  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

std::string json_error(const std::string& text) {
  return input_error([&] { parse_json(text, "settings.json"); });
}

TEST(Hash, IsFnv1aOnEveryMachine) {
  // Test vectors published with the algorithm.
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325ull);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8ull);
  EXPECT_EQ(fnv1a("bar", fnv1a("foo")), fnv1a("foobar"));
  EXPECT_EQ(hex(0xaf63dc4c8601ec8cull), "af63dc4c8601ec8c");
  EXPECT_EQ(hex(0x1f), "000000000000001f");
}

TEST(ParseJson, ReadsWhatIsValid) {
  const nlohmann::json value = parse_json(R"({"a": [1, 2.5, "\u00e9", null], "b": {"a": true}})", "x");
  EXPECT_EQ(value["a"][2], "\xC3\xA9");
  EXPECT_EQ(value["b"]["a"], true);
  EXPECT_EQ(parse_json(std::string(64, '[') + std::string(64, ']'), "x").size(), 1u);
}

TEST(ParseJson, NamesFileAndByteOfAnError) {
  EXPECT_THAT(json_error(R"({"a": 1,})"), AllOf(HasSubstr("settings.json"), HasSubstr("byte 9")));
  EXPECT_THAT(json_error(""), HasSubstr("settings.json"));
  EXPECT_THAT(json_error("{} {}"), HasSubstr("settings.json"));
  EXPECT_THAT(json_error("1e999"), HasSubstr("settings.json"));
  EXPECT_THAT(json_error("\"\xFF\""), HasSubstr("settings.json"));
  EXPECT_THAT(json_error(R"("\ud800")"), HasSubstr("settings.json"));
}

TEST(ParseJson, ANulByteDoesNotEndTheText) {
  EXPECT_THAT(json_error(std::string("{\"a\": 1}\0 and more", 18)),
              AllOf(HasSubstr("NUL"), HasSubstr("byte 9 of 18")));
}

TEST(ParseJson, RefusesDuplicateKeysAndDeepNesting) {
  EXPECT_THAT(json_error(R"({"lr": 1, "b": {"lr": 2}, "lr": 3})"), HasSubstr("\"lr\" twice"));
  EXPECT_THAT(json_error(std::string(65, '[') + std::string(65, ']')), HasSubstr("64"));
  EXPECT_THAT(json_error(std::string(1000000, '[')), HasSubstr("64"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_THAT(json_error(objects), HasSubstr("64"));
}

TEST_F(FilesTest, WritesAtomicallyAndReadsBack) {
  const std::string bytes("a\0b\r\n\xFF", 6);
  write_file_atomically(folder_ / "f", "older and longer than the next");
  write_file_atomically(folder_ / "f", bytes);
  EXPECT_EQ(read_file(folder_ / "f"), bytes);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);  // no temporary left
}

TEST_F(FilesTest, WritesWhatALinkLeadsToBeItThereOrNot) {
  std::filesystem::create_directory(folder_ / "far");
  std::filesystem::create_symlink("far/f", folder_ / "near");
  std::filesystem::create_symlink("near", folder_ / "nearer");
  for (const char* bytes : {"new", "replaced"}) {
    write_file_atomically(folder_ / "nearer", bytes);
    EXPECT_EQ(read_file(folder_ / "far" / "f"), bytes);
    EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "near"));
    EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "nearer"));
  }
  std::filesystem::create_symlink("round", folder_ / "round");
  EXPECT_EQ(input_error([&] { check_can_write(folder_ / "round"); }), "");
}

TEST_F(FilesTest, FailedWriteLeavesTheOldFileAlone) {
  EXPECT_THAT(input_error([&] { write_file_atomically(folder_ / "absent" / "f", "x"); }),
              HasSubstr("absent"));
  std::filesystem::create_directories(folder_ / "taken" / "inside");
  EXPECT_THAT(input_error([&] { write_file_atomically(folder_ / "taken", "x"); }), HasSubstr("taken"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FilesTest, KnowsBeforehandWhereNothingCanBeWritten) {
  EXPECT_EQ(input_error([&] { check_can_write(folder_ / "new"); }), "");
  write_file_atomically(folder_ / "old", "kept");
  EXPECT_EQ(input_error([&] { check_can_write(folder_ / "old"); }), "");
  EXPECT_EQ(read_file(folder_ / "old"), "kept");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  EXPECT_THAT(input_error([&] { check_can_write(folder_ / "absent" / "f"); }), HasSubstr("absent"));
  EXPECT_THAT(input_error([&] { check_can_write(folder_); }), HasSubstr("found a folder"));
}

TEST_F(FilesTest, ReplacesWhatALinkLeadsToAndNoPipe) {
  write_file_atomically(folder_ / "file", "old");
  std::filesystem::create_symlink("file", folder_ / "link");
  check_can_write(folder_ / "link");
  write_file_atomically(folder_ / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "file"), "new");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(input_error([&] { check_can_write(folder_ / "pipe"); }), HasSubstr("found a device or a pipe"));
}

TEST_F(FilesTest, RefusesWhatCannotBeRead) {
  std::ofstream(folder_ / "ten") << "0123456789";
  EXPECT_EQ(read_file(folder_ / "ten", 10), "0123456789");
  EXPECT_THAT(input_error([&] { read_file(folder_ / "ten", 9); }),
              AllOf(HasSubstr("ten"), HasSubstr("9 bytes")));
  EXPECT_THAT(input_error([&] { read_file(folder_ / "absent"); }), HasSubstr("No such file"));
  EXPECT_THAT(input_error([&] { read_file(folder_); }), HasSubstr("directory"));
  std::ofstream(folder_ / "broken.json") << "{\"a\"";
  EXPECT_THAT(input_error([&] { read_json(folder_ / "broken.json"); }),
              HasSubstr("broken.json: expected valid JSON"));
}

}  // namespace
}  // namespace clover::data
