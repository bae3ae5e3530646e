#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace clover::train {

/// Seconds of steps and evaluations.
struct LoggedTime {
  double steps = 0;
  double evaluations = 0;
};

/// RUN/log.jsonl: one JSON object a line, each with a "step".
class Log {
 public:
  /// Opens the log of a run that is resumed after step `resume_step`: removes the lines of later steps and an
  /// incomplete last line.  -1: begins a new log.
  Log(const std::filesystem::path& file, int64_t resume_step);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// What the removed lines say that their steps took: a killed run made them, and this one makes them again.
  const LoggedTime& removed() const { return removed_; }

  /// Appends a line in one write, so that only the last line of a file can be incomplete.
  void write(const nlohmann::json& line);

 private:
  int descriptor_;    // of the open file
  std::string name_;  // of the file, for messages
  LoggedTime removed_;
};

}  // namespace clover::train
