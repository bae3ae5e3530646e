#include "data/files/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "data/files/hash.h"
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

TEST(Hash, IsXxh64) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes.push_back(static_cast<char>(i * 7 % 251));
  // Of the library `xxhash` 4.1.0.
  const struct {
    size_t size;
    uint64_t hash, seeded;
  } expected[] = {
      {0, 0xef46db3751d8e999, 0xac75fda2929b17ef},   {1, 0xe934a84adb052768, 0x5014607643a9b4c3},
      {3, 0x9ff70a635a6209ab, 0xecf3373c29e497d4},   {4, 0xae5acdc00a55ac41, 0xba4a2450c7e2c0a9},
      {8, 0x87116b3365b924eb, 0x22e331c009171f74},   {12, 0x14b8433b9a14e611, 0x412d850c301a22cf},
      {31, 0x0f187c62b1e722b7, 0xa2ba2580312f0f94},  {32, 0x91b0cb0931a8c629, 0xba4945101354e701},
      {33, 0x931b043cf8d65b94, 0x1f245ed9dde2a6c8},  {63, 0x575186c12dcebcfd, 0x95ca2a02d49c9f5a},
      {64, 0xab64977b5af9d022, 0x8331f82a8976796c},  {100, 0xb7fe1d84b2f23a05, 0x4ea9167400aa07bd},
      {1000, 0x023fd2ed1ff957d5, 0xeae0db0c40f2ce5a}};
  for (const auto& [size, hash, seeded] : expected) {
    EXPECT_EQ(xxh64(std::string_view(bytes).substr(0, size), 0), hash) << size;
    EXPECT_EQ(xxh64(std::string_view(bytes).substr(0, size), 2654435761), seeded) << size;
  }
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
  EXPECT_EQ(input_error([&] { check_writable(folder_ / "round"); }), "");
}

TEST_F(FilesTest, FailedWriteLeavesTheOldFileAlone) {
  EXPECT_THAT(input_error([&] { write_file_atomically(folder_ / "absent" / "f", "x"); }),
              HasSubstr("absent"));
  std::filesystem::create_directories(folder_ / "taken" / "inside");
  EXPECT_THAT(input_error([&] { write_file_atomically(folder_ / "taken", "x"); }), HasSubstr("taken"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FilesTest, KnowsBeforehandWhereNothingCanBeWritten) {
  EXPECT_EQ(input_error([&] { check_writable(folder_ / "new"); }), "");
  write_file_atomically(folder_ / "old", "kept");
  EXPECT_EQ(input_error([&] { check_writable(folder_ / "old"); }), "");
  EXPECT_EQ(read_file(folder_ / "old"), "kept");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  EXPECT_THAT(input_error([&] { check_writable(folder_ / "absent" / "f"); }), HasSubstr("absent"));
  EXPECT_THAT(input_error([&] { check_writable(folder_); }), HasSubstr("found a folder"));
}

TEST_F(FilesTest, ReplacesWhatALinkLeadsToAndNoPipe) {
  write_file_atomically(folder_ / "file", "old");
  std::filesystem::create_symlink("file", folder_ / "link");
  check_writable(folder_ / "link");
  write_file_atomically(folder_ / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "file"), "new");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(input_error([&] { check_writable(folder_ / "pipe"); }), HasSubstr("found a device or a pipe"));
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

// Reading a pipe may wait forever, and a device may never end.
TEST_F(FilesTest, APipeASocketOrADeviceInAFolderIsNoFile) {
  const auto refusal = [&](const char* name) { return input_error([&] { read_json(folder_ / name); }); };
  ASSERT_EQ(::mkfifo((folder_ / "pipe.json").c_str(), 0600), 0);
  EXPECT_THAT(refusal("pipe.json"), AllOf(HasSubstr("pipe.json"), HasSubstr("regular file")));
  std::filesystem::create_symlink("/dev/zero", folder_ / "device.json");
  EXPECT_THAT(refusal("device.json"), AllOf(HasSubstr("device.json"), HasSubstr("regular file")));
  const int server = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{AF_UNIX, {}};
  (folder_ / "socket.json").string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(refusal("socket.json"), HasSubstr("socket.json"));
  ::close(server);
  std::filesystem::create_directory(folder_ / "folder.json");
  EXPECT_THAT(refusal("folder.json"), HasSubstr("folder.json"));
  std::ofstream(folder_ / "there.json") << "[1]";
  std::filesystem::create_symlink("there.json", folder_ / "link.json");
  EXPECT_EQ(read_json(folder_ / "link.json"), nlohmann::json({1}));
}

TEST_F(FilesTest, WhatAShellHandsOverIsRead) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "[2]", 3), 3);
  ::close(ends[1]);
  EXPECT_EQ(read_json("/dev/fd/" + std::to_string(ends[0])), nlohmann::json({2}));
  ::close(ends[0]);
}

}  // namespace
}  // namespace clover::data
