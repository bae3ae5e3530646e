#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

namespace clover::train {

/// Writes scalars for TensorBoard: a file of records, each a protocol-buffer message `Event`, encoded by
/// hand, with its length and checksums.  Each writer begins a new file
/// `events.out.tfevents.<seconds>.<host>.<process>.<number>`; TensorBoard joins them.  Write errors after the
/// constructor are ignored, since log.jsonl holds the same numbers.
class TensorBoardWriter {
 public:
  /// Creates folder and file.  `resume_step`: the step after which a run continues, -1 for a new run.
  /// TensorBoard then drops later steps of earlier files.  std::runtime_error when the file cannot be
  /// created.
  explicit TensorBoardWriter(const std::filesystem::path& folder, int64_t resume_step = -1);
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  /// Adds a point to the curve `tag`.
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
