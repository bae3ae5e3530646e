#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

namespace clover::train {

/// Writes scalars as TensorBoard reads them: records of hand-encoded `Event` messages, each with its length
/// and checksums, in `events.out.tfevents.<seconds>.<host>.<process>.<number>`.  Each writer begins a new
/// file; TensorBoard joins them. A write that fails makes no noise after the constructor: events are a view
/// of log.jsonl, never the record itself.
class TensorBoardWriter {
 public:
  /// Makes the folder where needed.  The run goes on behind `resume_step` (-1: it begins), and TensorBoard
  /// drops what earlier files hold at later steps.  std::runtime_error when the file cannot be created.
  explicit TensorBoardWriter(const std::filesystem::path& folder, int64_t resume_step = -1);
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  void scalar(const std::string& tag, double value, int64_t step);
  void flush();

  const std::filesystem::path& file() const { return path_; }

 private:
  void write_record(std::string_view event);

  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
};

/// CRC-32C (Castagnoli) of bytes.
uint32_t crc32c(std::string_view bytes);

}  // namespace clover::train
