#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace clover::infer {

/// A progress bar.  On a terminal it is one line, redrawn at most five times a second:
///   batch [######--------------]  30/100  412 tokens/s  0:12 elapsed, 0:28 left
/// In a log file it is a new line without the bar at most every 15 seconds.  Not thread-safe.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// `label`: the text before the bar.  `total` items; <= 0: unknown, so neither a bar nor the time left is
  /// shown.  `done`: items that earlier runs did; the time left is computed from this run's pace alone.
  /// Nothing is written yet.
  Progress(std::string label, int64_t total, int64_t done = 0, std::FILE* out = stderr);
  /// The same with the kind of output and the start time given, for tests.
  Progress(std::string label, int64_t total, int64_t done, std::FILE* out, bool terminal,
           Clock::time_point start);
  ~Progress();  // ends the line that is still open
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done`: how many of `total` items are done, earlier runs included.  `note` is shown after the count.
  void update(int64_t done, const std::string& note = "") { update_at(Clock::now(), done, note); }
  /// The same at a given time, for tests.
  void update_at(Clock::time_point now, int64_t done, const std::string& note);

  /// Writes the last line.  `note` replaces the note of the last update when it is not empty.
  void finish(const std::string& note = "") { finish_at(Clock::now(), note); }
  /// The same at a given time, for tests.
  void finish_at(Clock::time_point now, const std::string& note);

  /// Erases the line on a terminal, so that something else can be printed there.  The next update draws it
  /// again.
  void clear();

 private:
  std::string line(Clock::time_point now) const;
  void draw(Clock::time_point now);

  std::string label_;
  int64_t total_;
  std::FILE* out_;
  bool terminal_;
  Clock::time_point start_;
  Clock::time_point last_drawn_;  // at first the start
  bool drawn_ = false;            // since the start or the last clear()
  bool line_open_ = false;        // the terminal's line has no line feed yet
  bool finished_ = false;
  int64_t done_before_;  // items that earlier runs did
  int64_t done_;         // all items done, by earlier runs and this one
  std::string note_;
};

/// Seconds as "0:07", "12:34" or "1:02:03".
std::string clock_text(double seconds);

}  // namespace clover::infer
