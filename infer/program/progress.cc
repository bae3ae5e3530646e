#include "infer/program/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace clover::infer {
namespace {

using std::chrono::duration;
// Shortest time between two lines.
constexpr std::chrono::milliseconds terminal_interval{200};
constexpr std::chrono::seconds log_interval{15};
constexpr int bar_width = 20;  // characters
constexpr const char* erase_line = "\r\x1b[K";

size_t terminal_columns(std::FILE* out) {
  struct winsize size {};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

/// `share`: what is done, from 0 to 1.
std::string bar(double share) {
  const int filled = static_cast<int>(share * bar_width);
  return "[" + std::string(filled, '#') + std::string(bar_width - filled, '-') + "]";
}

}  // namespace

std::string clock_text(double seconds) {
  const int64_t whole = std::llround(std::max(seconds, 0.0));
  char text[32];
  if (whole < 3600) {
    std::snprintf(text, sizeof text, "%d:%02d", static_cast<int>(whole / 60), static_cast<int>(whole % 60));
  } else {
    std::snprintf(text, sizeof text, "%lld:%02d:%02d", static_cast<long long>(whole / 3600),
                  static_cast<int>(whole / 60 % 60), static_cast<int>(whole % 60));
  }
  return text;
}

Progress::Progress(std::string label, int64_t total, int64_t done, std::FILE* out)
    : Progress(std::move(label), total, done, out, ::isatty(::fileno(out)) == 1, Clock::now()) {}

Progress::Progress(std::string label, int64_t total, int64_t done, std::FILE* out, bool terminal,
                   Clock::time_point start)
    : label_(std::move(label)),
      total_(total),
      out_(out),
      terminal_(terminal),
      start_(start),
      last_drawn_(start),
      done_before_(done),
      done_(done) {}

Progress::~Progress() {
  if (line_open_) std::fputc('\n', out_);
}

void Progress::update_at(Clock::time_point now, int64_t done, const std::string& note) {
  done_ = done;
  note_ = note;
  // A terminal shows the first line at once.  A log gets its first line after an interval, so a short job
  // writes only the last line there.
  const bool due =
      terminal_ ? !drawn_ || now - last_drawn_ >= terminal_interval : now - last_drawn_ >= log_interval;
  if (due) draw(now);
}

void Progress::finish_at(Clock::time_point now, const std::string& note) {
  if (finished_) return;
  finished_ = true;
  if (!note.empty()) note_ = note;
  draw(now);
  if (line_open_) std::fputc('\n', out_);
  line_open_ = false;
  std::fflush(out_);
}

void Progress::clear() {
  if (!line_open_) return;
  std::fputs(erase_line, out_);
  std::fflush(out_);
  line_open_ = false;
  drawn_ = false;
}

std::string Progress::line(Clock::time_point now) const {
  std::string text = label_;
  if (total_ > 0) {
    if (terminal_) text += " " + bar(std::clamp(static_cast<double>(done_) / total_, 0.0, 1.0));
    text += "  " + std::to_string(done_) + "/" + std::to_string(total_);
  } else {
    text += "  " + std::to_string(done_);
  }
  if (!note_.empty()) text += "  " + note_;
  text += "  " + clock_text(duration<double>(now - start_).count()) + " elapsed";
  const int64_t done_in_this_run = done_ - done_before_;
  if (!finished_ && total_ > done_ && done_in_this_run > 0) {
    const double seconds_each = duration<double>(now - start_).count() / done_in_this_run;
    text += ", " + clock_text(seconds_each * (total_ - done_)) + " left";
  }
  return text;
}

void Progress::draw(Clock::time_point now) {
  std::string text = line(now);
  if (terminal_) {
    // A line that wraps could not be redrawn in place.
    const size_t columns = terminal_columns(out_);
    if (text.size() >= columns) text.resize(columns - 1);
    std::fputs(erase_line, out_);
    std::fputs(text.c_str(), out_);
    line_open_ = true;
  } else {
    std::fputs((text + "\n").c_str(), out_);
  }
  std::fflush(out_);
  last_drawn_ = now;
  drawn_ = true;
}

}  // namespace clover::infer
