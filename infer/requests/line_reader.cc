#include "infer/requests/line_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "data/files/error.h"
#include "data/files/hash.h"

namespace clover::infer {
namespace {

constexpr size_t chunk_bytes = size_t{1} << 18;
constexpr const char* blanks = " \t\r\n\v\f";

}  // namespace

LineReader::LineReader(const std::filesystem::path& file, size_t limit)
    : path_(file), file_(std::fopen(file.c_str(), "rbe")), buffer_(chunk_bytes), limit_(limit) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw data::InputError(file.string() + ": expected a file of JSON lines, found a folder");
  }
  if (!file_) {
    throw data::InputError(file.string() + ": expected a readable file of JSON lines, found " +
                           std::strerror(errno));
  }
}

bool LineReader::fill() {
  begin_ = 0;
  end_ = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
  if (end_ == 0 && std::ferror(file_.get())) {
    throw std::runtime_error(path_.string() + ": reading failed behind line " + std::to_string(number_) +
                             ": " + std::strerror(errno));
  }
  return end_ > 0;
}

bool LineReader::next(std::string& line) {
  line.clear();
  too_long_ = has_line_feed_ = false;
  bool read_any = false;
  while (!has_line_feed_ && (begin_ < end_ || fill())) {
    read_any = true;
    const char* from = buffer_.data() + begin_;
    const auto* line_feed = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
    const size_t count = line_feed ? static_cast<size_t>(line_feed - from) : end_ - begin_;
    const size_t room = limit_ - std::min(limit_, line.size());
    too_long_ = too_long_ || count > room;
    line.append(from, std::min(count, room));
    begin_ += count + (line_feed ? 1 : 0);
    has_line_feed_ = line_feed != nullptr;
  }
  if (!read_any) return false;
  ++number_;
  if (!line.empty() && line.back() == '\r' && !too_long_) line.pop_back();
  if (number_ == 1 && line.rfind("\xEF\xBB\xBF", 0) == 0) line.erase(0, 3);
  return true;
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(blanks) == std::string::npos;
}

FileSummary summarise_file(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) {
    throw data::InputError(file.string() +
                           ": expected a regular file (it is read twice, and again when a job continues), "
                           "found something else; save the input to a file first");
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file.c_str(), "rbe"), std::fclose);
  if (!in) {
    throw data::InputError(file.string() + ": expected a readable file of JSON lines, found " +
                           std::strerror(errno));
  }
  FileSummary summary;
  uint64_t hash = data::fnv1a_offset_basis;
  std::vector<char> chunk(chunk_bytes);
  bool in_line = false;    // the current line has begun
  bool not_blank = false;  // it holds more than blanks
  // A byte-order mark does not count as text, because LineReader drops it.
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  char begin[byte_order_mark.size()];
  if (std::fread(begin, 1, sizeof begin, in.get()) == sizeof begin &&
      std::string_view(begin, sizeof begin) == byte_order_mark) {
    hash = data::fnv1a(byte_order_mark, hash);
    in_line = true;
  } else {
    std::rewind(in.get());
  }
  while (const size_t bytes_read = std::fread(chunk.data(), 1, chunk.size(), in.get())) {
    hash = data::fnv1a({chunk.data(), bytes_read}, hash);
    for (size_t i = 0; i < bytes_read; ++i) {
      in_line = chunk[i] != '\n';
      if (in_line) {
        not_blank = not_blank || std::string_view(blanks).find(chunk[i]) == std::string_view::npos;
      } else {
        ++summary.lines;
        summary.filled_lines += not_blank;
        not_blank = false;
      }
    }
  }
  summary.lines += in_line;
  summary.filled_lines += not_blank;
  summary.hash = data::hex(hash);
  return summary;
}

}  // namespace clover::infer
