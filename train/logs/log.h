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

/// What the log says of later steps than `step`: a killed run made them, and the resumed one makes them
/// again.
LoggedTime time_after(const std::filesystem::path& file, int64_t step);

/// RUN/log.jsonl: one JSON object a line, each with a "step".
class Log {
 public:
  /// Opens the log of a run that is resumed after step `resume_step`: removes the lines of later steps and an
  /// incomplete last line.  -1: begins a new log.
  Log(const std::filesystem::path& file, int64_t resume_step);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// Appends a line in one write, so that only the last line of a file can be incomplete.
  void write(const nlohmann::json& line);

 private:
  int descriptor_;    // of the open file
  std::string name_;  // of the file, for messages
};

}  // namespace clover::train
