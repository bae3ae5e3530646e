#include "data/chat/jinja/values/texts.h"

#include <algorithm>
#include <cstring>

#include "data/files/error.h"
#include "data/text/character_kind.h"
#include "data/text/utf8.h"

namespace clover::data::jinja {
namespace {

/// Bytes of the last character of a text.
size_t last_character_bytes(std::string_view text) {
  size_t length = 1;
  while (length < 4 && length < text.size() && is_continuation_byte(text[text.size() - length])) ++length;
  return length;
}

bool is_blank(std::string_view character) {
  return is_python_space(decode_utf8(character, 0).code_point);
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

void append(std::string& text, const std::string& part, int64_t count) {
  for (int64_t i = 0; i < count; ++i) text += part;
}

}  // namespace

size_t find_linear(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  charge_template_work(
      static_cast<int64_t>(((text.size() - from) >> 8) * std::min<size_t>(part.size() / 16 + 1, 16)));
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found != nullptr ? static_cast<size_t>(static_cast<const char*>(found) - text.data())
                          : std::string_view::npos;
}

size_t rfind_linear(std::string_view text, std::string_view part) {
  charge_template_work(static_cast<int64_t>((text.size() >> 8) * (part.size() / 16 + 1)));
  return text.rfind(part);
}

int64_t count_characters(std::string_view text) {
  charge_template_work(static_cast<int64_t>(text.size() >> 5));
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).length) ++count;
  return count;
}

std::vector<size_t> character_starts(std::string_view text) {
  charge_template_work(static_cast<int64_t>(text.size() >> 5));
  std::vector<size_t> starts;
  starts.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).length) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

std::string_view stripped(std::string_view text, bool left, bool right, const std::string* characters) {
  const auto is_stripped = [&](std::string_view character) {
    return characters != nullptr ? characters->find(character) != std::string::npos : is_blank(character);
  };
  while (left && !text.empty()) {
    const size_t length = decode_utf8(text, 0).length;
    if (!is_stripped(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    const size_t length = last_character_bytes(text);
    if (!is_stripped(text.substr(text.size() - length))) break;
    text.remove_suffix(length);
  }
  return text;
}

std::string replaced(const std::string& text, const std::string& old, const std::string& replacement,
                     int64_t max_count) {
  std::string result;
  size_t at = 0;
  for (; max_count != 0; --max_count) {
    // An empty `old` matches before every character and at the end.
    const size_t next = at < text.size() ? at + decode_utf8(text, at).length : text.size();
    const size_t found = old.empty() ? at : find_linear(text, old, at);
    if (found == std::string::npos) break;
    result.append(text, at, found - at);
    result += replacement;
    check_size(result);
    at = found + old.size();
    if (!old.empty()) continue;
    result.append(text, at, next - at);
    if (at == text.size()) return result;
    at = next;
  }
  result.append(text, at);
  return result;
}

std::vector<std::string> split_at(const std::string& text, const std::string& separator, int64_t max_count) {
  if (separator.empty()) throw InputError("a text is split at an empty one");
  std::vector<std::string> parts;
  size_t at = 0;
  for (; max_count != 0; --max_count) {
    const size_t found = find_linear(text, separator, at);
    if (found == std::string::npos) break;
    parts.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  parts.push_back(text.substr(at));
  charge_template_work(std::ssize(parts));
  return parts;
}

std::vector<std::string> split_from_right(const std::string& text, const std::string& separator,
                                          int64_t max_count) {
  if (separator.empty()) throw InputError("a text is split at an empty one");
  std::vector<std::string> parts;
  std::string_view remaining = text;
  for (; max_count != 0; --max_count) {
    const size_t found = rfind_linear(remaining, separator);
    if (found == std::string_view::npos) break;
    parts.emplace_back(remaining.substr(found + separator.size()));
    remaining = remaining.substr(0, found);
  }
  parts.emplace_back(remaining);
  std::reverse(parts.begin(), parts.end());
  charge_template_work(std::ssize(parts));
  return parts;
}

std::vector<std::string> split_at_whitespace(std::string_view text, int64_t max_count) {
  std::vector<std::string> parts;
  for (std::string_view remaining = stripped(text, true, false); !remaining.empty(); --max_count) {
    size_t end = 0;
    while (end < remaining.size() && max_count != 0) {
      const size_t length = decode_utf8(remaining, end).length;
      if (is_blank(remaining.substr(end, length))) break;
      end += length;
    }
    if (max_count == 0) end = remaining.size();
    parts.emplace_back(remaining.substr(0, end));
    remaining = stripped(remaining.substr(end), true, false);
  }
  charge_template_work(std::ssize(parts));
  return parts;
}

std::vector<std::string> split_at_whitespace_from_right(std::string_view text, int64_t max_count) {
  std::vector<std::string> parts;
  for (std::string_view remaining = stripped(text, false, true); !remaining.empty(); --max_count) {
    size_t begin = remaining.size();
    while (begin > 0 && max_count != 0) {
      const size_t length = last_character_bytes(remaining.substr(0, begin));
      if (is_blank(remaining.substr(begin - length, length))) break;
      begin -= length;
    }
    if (max_count == 0) begin = 0;
    parts.emplace_back(remaining.substr(begin));
    remaining = stripped(remaining.substr(0, begin), false, true);
  }
  std::reverse(parts.begin(), parts.end());
  charge_template_work(std::ssize(parts));
  return parts;
}

std::vector<std::string> splitlines(const std::string& text, bool with_ends) {
  charge_template_work(static_cast<int64_t>(text.size() >> 5));
  std::vector<std::string> lines;
  for (size_t begin = 0, at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    size_t next = at + step.length;
    if (is_line_end(step.code_point)) {
      if (step.code_point == U'\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (with_ends ? next : at) - begin));
      begin = next;
    } else if (next == text.size()) {
      lines.push_back(text.substr(begin));
    }
    at = next;
  }
  charge_template_work(std::ssize(lines));
  return lines;
}

std::string padded(const std::string& text, int64_t width, const std::string& fill, int side) {
  if (count_characters(fill) != 1) throw InputError("expected one character to fill with");
  const int64_t padding = width - count_characters(text);
  if (padding <= 0) return text;
  check_size(static_cast<size_t>(std::min<int64_t>(padding, max_text_bytes + 1)) * fill.size() + text.size());
  // As in CPython: the extra fill character goes to the left when the width is odd.
  const int64_t left = side < 0 ? 0 : side > 0 ? padding : padding / 2 + (padding & width & 1);
  std::string result;
  append(result, fill, left);
  result += text;
  append(result, fill, padding - left);
  return result;
}

}  // namespace clover::data::jinja
