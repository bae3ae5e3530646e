#include "data/training/record_texts.h"

#include <algorithm>

namespace clover::data {
namespace {

constexpr std::string_view blanks = " \t\r\n";
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

struct Extent {
  size_t length;
  bool complete;  // false: the text ends inside the value
};

/// Length of the JSON value that begins at 0: up to its last bracket, or up to a separator.
Extent extent_of_value(std::string_view text) {
  int64_t depth = 0;
  bool inside = false;  // inside a string
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside) {
      if (c == '\\') ++i;
      inside = c != '"';
    } else if (c == '"') {
      inside = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return {i, true};
      if (--depth == 0) return {i + 1, true};
    } else if (c == ',' && depth == 0) {
      return {i, true};
    }
  }
  return {text.size(), false};
}

}  // namespace

bool is_json_array(std::string_view text) {
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == text.npos || text[begin] != '[') return false;
  // A list that ends on its line, with more text after it, is a record of JSON lines.
  const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  const Extent extent = extent_of_value(line);
  return !extent.complete || text.find_first_not_of(blanks, begin + extent.length) == text.npos;
}

RecordTexts::RecordTexts(std::string_view text) : rest_(text), is_array_(is_json_array(text)) {
  if (rest_.starts_with(byte_order_mark)) rest_.remove_prefix(byte_order_mark.size());
  if (!is_array_) return;
  skip_blanks();
  rest_.remove_prefix(1);
}

bool RecordTexts::next(Record& record) {
  return is_array_ ? next_element(record) : next_line(record);
}

bool RecordTexts::next_line(Record& record) {
  while (!rest_.empty()) {
    const size_t length = std::min(rest_.find('\n'), rest_.size());
    record = {rest_.substr(0, length), line_++, ""};
    rest_.remove_prefix(std::min(length + 1, rest_.size()));
    if (record.text.find_first_not_of(" \t\r") != record.text.npos) return true;
  }
  return false;
}

void RecordTexts::skip_blanks() {
  const size_t begin = std::min(rest_.find_first_not_of(blanks), rest_.size());
  line_ += std::count(rest_.begin(), rest_.begin() + begin, '\n');
  rest_.remove_prefix(begin);
}

bool RecordTexts::next_element(Record& record) {
  skip_blanks();
  if (ended_) return false;
  record = {"", line_, ""};
  if (rest_.starts_with(']')) {
    rest_.remove_prefix(1);
    skip_blanks();
    ended_ = true;
    if (!rest_.empty()) record.error = "expected nothing behind the array, found more";
    return !rest_.empty();
  }
  if (!first_) {
    if (!rest_.starts_with(',')) {
      ended_ = true;
      record.error = rest_.empty()
                         ? "expected \"]\" at the end of the array, found the end of the file"
                         : "expected \",\" or \"]\" behind an element of the array, found something else";
      return true;
    }
    rest_.remove_prefix(1);
    skip_blanks();
    record.line = line_;
  }
  first_ = false;
  const size_t length = extent_of_value(rest_).length;
  record.text = rest_.substr(0, length);
  line_ += std::count(rest_.begin(), rest_.begin() + length, '\n');
  rest_.remove_prefix(length);
  if (length == 0) {
    ended_ = true;
    record.error = "expected an element of the array, found none";
  }
  return true;
}

}  // namespace clover::data
