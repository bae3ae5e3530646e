#include "train/logs/tensorboard_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>

#include "tests/support/temporary_folder.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// An independent reader of event files, from the definitions of CRC-32C and of the protocol-buffer wire
// format.

uint32_t slow_crc32c(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const unsigned char byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool carry = (crc ^ (byte >> bit)) & 1;
      crc = (crc >> 1) ^ (carry ? 0x82f63b78u : 0);
    }
  }
  return crc ^ 0xffffffff;
}

class Bytes {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  bool empty() const { return at_ == bytes_.size(); }
  std::string take(size_t count) {
    if (count > bytes_.size() - at_) throw std::runtime_error("cut short");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  uint64_t number(size_t width) {
    uint64_t value = 0;
    const std::string raw = take(width);
    for (size_t i = 0; i < width; ++i) value += uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint64_t byte = number(1);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
  /// Fields of a message: number -> its bytes, or its value as 8 little-endian bytes.
  std::map<int, std::string> message() {
    std::map<int, std::string> fields;
    while (!empty()) {
      const uint64_t key = varint();
      std::string value;
      switch (key & 7) {
        case 0: {
          const uint64_t number = varint();
          value.assign(reinterpret_cast<const char*>(&number), 8);
          break;
        }
        case 1:
          value = take(8);
          break;
        case 2:
          value = take(varint());
          break;
        case 5:
          value = take(4);
          break;
        default:
          throw std::runtime_error("unknown wire type");
      }
      fields[static_cast<int>(key >> 3)] = value;
    }
    return fields;
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

template <typename T>
T as(const std::string& bytes) {
  T value;
  if (bytes.size() != sizeof value) throw std::runtime_error("wrong width");
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  std::string session;
  std::string tag;
  std::optional<float> value;
};

std::vector<Event> read_events(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  Bytes bytes(std::string(std::istreambuf_iterator<char>(in), {}));
  const auto masked = [](const std::string& data) {
    const uint32_t crc = slow_crc32c(data);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  };
  std::vector<Event> events;
  while (!bytes.empty()) {
    const std::string length = bytes.take(8);
    EXPECT_EQ(bytes.number(4), masked(length));
    const std::string data = bytes.take(as<uint64_t>(length));
    EXPECT_EQ(bytes.number(4), masked(data));
    auto fields = Bytes(data).message();
    Event event{as<double>(fields.at(1)), as<int64_t>(fields.at(2)), fields[3], fields[7], "", {}};
    if (fields.count(5)) {
      auto value = Bytes(Bytes(fields[5]).message().at(1)).message();
      event.tag = value.at(1);
      event.value = as<float>(value.at(2));
    }
    events.push_back(event);
  }
  return events;
}

class TensorBoardTest : public ::testing::Test {
 protected:
  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_ / "events";
};

TEST(Crc32c, HasThePublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(""), 0u);
}

TEST_F(TensorBoardTest, WritesScalarsThatAnIndependentReaderFinds) {
  TensorBoardWriter writer(folder_);
  writer.scalar("loss", 2.5, 0);
  writer.scalar("accuracy/head 1", -1e-3, 300);
  writer.scalar(std::string(300, 'x'), std::nan(""), int64_t{1} << 40);
  writer.flush();
  const std::vector<Event> events = read_events(writer.file());
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[1].step,
            0);  // earlier files of the folder belong to another run: drop them from step 0 on
  EXPECT_EQ(as<uint64_t>(Bytes(events[1].session).message().at(1)), 1u);  // SessionLog.START
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_GT(events[0].wall_time, 1.6e9);  // seconds, not milliseconds
  EXPECT_LT(events[0].wall_time, 1e10);
  EXPECT_EQ(events[2].tag, "loss");
  EXPECT_EQ(events[2].value, 2.5f);
  EXPECT_EQ(events[2].step, 0);
  EXPECT_EQ(events[3].tag, "accuracy/head 1");
  EXPECT_EQ(events[3].value, -1e-3f);
  EXPECT_EQ(events[3].step, 300);
  EXPECT_EQ(events[4].tag.size(), 300u);
  EXPECT_TRUE(std::isnan(*events[4].value));
  EXPECT_EQ(events[4].step, int64_t{1} << 40);
}

TEST_F(TensorBoardTest, AResumedRunBeginsItsOwnFileAndMarksWhereItGoesOn) {
  const TensorBoardWriter first(folder_);
  const TensorBoardWriter second(folder_, 50);
  EXPECT_NE(first.file(), second.file());
  EXPECT_THAT(second.file().filename().string(), StartsWith("events.out.tfevents."));
  const std::vector<Event> events = read_events(second.file());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].step, 51);
  EXPECT_EQ(as<uint64_t>(Bytes(events[1].session).message().at(1)), 1u);  // SessionLog.START
}

TEST_F(TensorBoardTest, SaysWhereItCannotWrite) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "file") << "x";
  try {
    TensorBoardWriter writer(folder_ / "file");
    FAIL() << "expected an exception";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot be created"));
  }
}

}  // namespace
}  // namespace clover::train
