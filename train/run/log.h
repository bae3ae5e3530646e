#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace clover::train {

/// RUN/log.jsonl: one JSON object a line, each with a "step".
class Log {
 public:
  /// Opens the log.  Lines of steps after `resume_step` and an incomplete last line are removed; -1: a new
  /// log.
  Log(const std::filesystem::path& file, int64_t resume_step);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void write(const nlohmann::json& line);  // by one write call, so only the last line can be incomplete

 private:
  int descriptor_;
  std::string name_;
};

}  // namespace clover::train
