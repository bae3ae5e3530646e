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

/// Length in bytes of the JSON value at the beginning of `text`: up to its closing bracket, or up to the ","
/// or "]" after it.
Extent extent_of_value(std::string_view text) {
  int64_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
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
  // A list that ends on its first line, with more text after it, is a record of JSON lines.
  const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  const Extent extent = extent_of_value(line);
  return !extent.complete || text.find_first_not_of(blanks, begin + extent.length) == text.npos;
}

RecordTexts::RecordTexts(std::string_view text) : remaining_text_(text), is_array_(is_json_array(text)) {
  if (remaining_text_.starts_with(byte_order_mark)) remaining_text_.remove_prefix(byte_order_mark.size());
  if (!is_array_) return;
  skip_blanks();
  remaining_text_.remove_prefix(1);
}

bool RecordTexts::next(Record& record) {
  return is_array_ ? next_element(record) : next_line(record);
}

bool RecordTexts::next_line(Record& record) {
  while (!remaining_text_.empty()) {
    const size_t length = std::min(remaining_text_.find('\n'), remaining_text_.size());
    record = {remaining_text_.substr(0, length), line_++, ""};
    remaining_text_.remove_prefix(std::min(length + 1, remaining_text_.size()));
    if (record.text.find_first_not_of(" \t\r") != record.text.npos) return true;
  }
  return false;
}

void RecordTexts::skip_blanks() {
  const size_t begin = std::min(remaining_text_.find_first_not_of(blanks), remaining_text_.size());
  line_ += std::count(remaining_text_.begin(), remaining_text_.begin() + begin, '\n');
  remaining_text_.remove_prefix(begin);
}

bool RecordTexts::next_element(Record& record) {
  skip_blanks();
  if (array_ended_) return false;
  record = {"", line_, ""};
  if (remaining_text_.starts_with(']')) {
    remaining_text_.remove_prefix(1);
    skip_blanks();
    array_ended_ = true;
    if (!remaining_text_.empty()) record.error = "expected nothing behind the array, found more";
    return !remaining_text_.empty();
  }
  if (!at_first_element_) {
    if (!remaining_text_.starts_with(',')) {
      array_ended_ = true;
      record.error = remaining_text_.empty()
                         ? "expected \"]\" at the end of the array, found the end of the file"
                         : "expected \",\" or \"]\" behind an element of the array, found something else";
      return true;
    }
    remaining_text_.remove_prefix(1);
    skip_blanks();
    record.line = line_;
  }
  at_first_element_ = false;
  const size_t length = extent_of_value(remaining_text_).length;
  record.text = remaining_text_.substr(0, length);
  line_ += std::count(remaining_text_.begin(), remaining_text_.begin() + length, '\n');
  remaining_text_.remove_prefix(length);
  if (length == 0) {
    array_ended_ = true;
    record.error = "expected an element of the array, found none";
  }
  return true;
}

}  // namespace clover::data
