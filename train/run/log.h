#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace clover::train {

/// RUN/log.jsonl: one JSON object a line, each with a "step".
class Log {
 public:
  /// Keeps the lines up to `resume_step` (those of later steps will be written again, and a torn last line is
  /// cut off); -1 begins a new file.
  Log(const std::filesystem::path& file, int64_t resume_step);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void write(const nlohmann::json& line);  // one write call: a line is whole or torn at the very end

 private:
  int descriptor_;
  std::string name_;
};

}  // namespace clover::train
