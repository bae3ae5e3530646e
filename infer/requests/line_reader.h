#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace clover::infer {

/// Reads a text file line by line in bounded memory.
class LineReader {
 public:
  static constexpr size_t default_limit = size_t{16} << 20;  // bytes of a line (16 MiB)

  /// InputError when the file cannot be read.
  explicit LineReader(const std::filesystem::path& file, size_t limit = default_limit);

  /// Reads the next line, without its end ("\n" or "\r\n") and without a byte-order mark; false at the end of
  /// the file.  Of a line that is longer than the limit only the beginning is kept, and too_long() is true.
  bool next(std::string& line);

  // Of the line that was read last:
  int64_t number() const { return number_; }  // from 1
  bool too_long() const { return too_long_; }
  /// Whether a line feed ends it; false for a last line that was cut off because its writer was killed.
  bool has_line_feed() const { return has_line_feed_; }

  size_t limit() const { return limit_; }  // bytes of a line

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  bool fill();  // reads the next bytes into buffer_; false at the end of the file

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // the bytes of buffer_ that were not returned yet
  size_t limit_;
  int64_t number_ = 0;
  bool too_long_ = false;
  bool has_line_feed_ = false;
};

/// Whether a line is empty or holds only blanks.
bool is_blank(const std::string& line);

/// The number of lines of a file and a hash of its bytes, by which a job that is continued checks that its
/// input is the same.
struct FileSummary {
  int64_t lines = 0;
  int64_t filled_lines = 0;  // lines that are not blank
  std::string hash;          // 16 hex digits
};
/// InputError when the file cannot be read or is not a regular file.
FileSummary summarise_file(const std::filesystem::path& file);

}  // namespace clover::infer
