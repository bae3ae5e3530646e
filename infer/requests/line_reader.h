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
  static constexpr size_t default_limit = size_t{16} << 20;

  /// InputError when the file cannot be read.
  explicit LineReader(const std::filesystem::path& file, size_t limit = default_limit);

  /// The next line without its end ("\n" or "\r\n") and without a byte-order mark; false at the end of the
  /// file.  Of a line longer than the limit only the beginning is kept, and `too_long` tells.
  bool next(std::string& line);

  int64_t number() const { return number_; }  // of the line last read, from 1
  bool too_long() const { return too_long_; }
  bool ended() const { return ended_; }  // whether the line last read ended with a line feed
  size_t limit() const { return limit_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  bool fill();

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  size_t limit_;
  int64_t number_ = 0;
  bool too_long_ = false;
  bool ended_ = false;
};

/// Whether a line holds nothing but blanks.
bool is_blank(const std::string& line);

/// Size in lines and a hash of every byte: what a continued job compares.  InputError when it cannot be read
/// or is no regular file.
struct FileSummary {
  int64_t lines = 0;
  int64_t filled_lines = 0;  // of which hold more than blanks
  std::string hash;
};
FileSummary summarise_file(const std::filesystem::path& file);

}  // namespace clover::infer
