#include "train/logs/tensorboard_events.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace clover::train {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82f63b78u : 0u);
    table[byte] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> crc_table = make_crc_table();

/// The checksum of TensorFlow's record files: the CRC-32C, rotated, plus a constant.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <typename T>
void put_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// Protocol-buffer fields: a varint of number << 3 | wire type, then the value.
enum Wire { varint = 0, fixed64 = 1, length_delimited = 2, fixed32 = 5 };

void put_key(std::string& out, int field, Wire wire) {
  put_varint(out, static_cast<uint64_t>(field << 3 | wire));
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, length_delimited);
  put_varint(out, bytes.size());
  out += bytes;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The first two fields of an Event.  Its fields: wall_time double = 1, step int64 = 2, file_version string =
// 3, summary = 5, session_log = 7.
std::string begin_event(int64_t step) {
  std::string event;
  const double now = seconds_since_1970();
  uint64_t bits = 0;
  std::memcpy(&bits, &now, sizeof bits);
  put_key(event, 1, fixed64);
  put_little_endian(event, bits);
  put_key(event, 2, varint);
  put_varint(event, static_cast<uint64_t>(step));
  return event;
}

std::string file_name() {
  static std::atomic<int> number{0};  // distinguishes writers that a process creates in the same second
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  return "events.out.tfevents." + std::to_string(static_cast<int64_t>(seconds_since_1970())) + "." + host +
         "." + std::to_string(::getpid()) + "." + std::to_string(number.fetch_add(1));
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) crc = crc >> 8 ^ crc_table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, int64_t resume_step) {
  std::error_code ignored;  // opening the file reports the error
  std::filesystem::create_directories(folder, ignored);
  path_ = folder / file_name();
  file_ = std::fopen(path_.c_str(), "wbxe");
  if (file_ == nullptr) {
    throw std::runtime_error(path_.string() + ": cannot be created: " + std::strerror(errno));
  }
  std::string version = begin_event(0);
  put_bytes(version, 3, "brain.Event:2");
  write_record(version);
  std::string start = begin_event(resume_step + 1);  // the first step that TensorBoard drops
  put_bytes(start, 7, std::string("\x08\x01", 2));   // SessionLog: status = START
  write_record(start);
  flush();
}

TensorBoardWriter::~TensorBoardWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

void TensorBoardWriter::scalar(const std::string& tag, double value, int64_t step) {
  const float simple_value = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &simple_value, sizeof bits);
  std::string point;  // Summary.Value: tag = 1, simple_value float = 2
  put_bytes(point, 1, tag);
  put_key(point, 2, fixed32);
  put_little_endian(point, bits);
  std::string summary;  // Summary: repeated value = 1
  put_bytes(summary, 1, point);
  std::string event = begin_event(step);
  put_bytes(event, 5, summary);
  write_record(event);
}

void TensorBoardWriter::write_record(std::string_view event) {
  std::string record;
  put_little_endian(record, static_cast<uint64_t>(event.size()));
  put_little_endian(record, masked_crc(record));
  record += event;
  put_little_endian(record, masked_crc(event));
  std::fwrite(record.data(), 1, record.size(), file_);
}

void TensorBoardWriter::flush() {
  std::fflush(file_);
}

}  // namespace clover::train
