#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace clover::infer {

/// How far a long job is.  On a terminal one line, redrawn at most five times a second:
///   batch [######--------------]  30/100  412 tokens/s  0:12 elapsed, 0:28 left
/// elsewhere (a log file) the same without the bar, as a line of its own at most every 15 seconds.  Not
/// thread-safe.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// `total` <= 0: not known, no bar and no time left.  `done`: what earlier runs did; the time left comes
  /// from this run's pace alone.  Writes nothing yet.
  Progress(std::string what, int64_t total, int64_t done = 0, std::FILE* out = stderr);
  /// As above with the kind of output and the time given, for tests.
  Progress(std::string what, int64_t total, int64_t done, std::FILE* out, bool terminal,
           Clock::time_point start);
  ~Progress();  // ends a line that is still open
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of `total`, earlier runs included.
  void update(int64_t done, const std::string& note = "") { update_at(Clock::now(), done, note); }
  void update_at(Clock::time_point now, int64_t done, const std::string& note);

  /// Always writes a last line, with `note` in place of the last update's when it is given.
  void finish(const std::string& note = "") { finish_at(Clock::now(), note); }
  void finish_at(Clock::time_point now, const std::string& note);

  /// Takes the line away on a terminal, so that something else can be printed; the next update draws it
  /// again.
  void clear();

 private:
  std::string line(Clock::time_point now) const;
  void draw(Clock::time_point now);

  std::string what_;
  int64_t total_;
  std::FILE* out_;
  bool terminal_;
  Clock::time_point start_;
  Clock::time_point last_drawn_;
  bool drawn_ = false;
  bool line_open_ = false;
  bool finished_ = false;
  int64_t first_done_;
  int64_t done_;
  std::string note_;
};

/// "0:07", "12:34", "1:02:03".
std::string clock_text(double seconds);

}  // namespace clover::infer
