#include "data/chat/jinja/values/texts.h"

#include <algorithm>
#include <cstring>

#include "data/files/error.h"
#include "data/text/character_kind.h"
#include "data/text/utf8.h"

namespace clover::data::jinja {
namespace {

/// Bytes of the last character of a text.
size_t last_length(std::string_view text) {
  size_t length = 1;
  while (length < 4 && length < text.size() && is_continuation_byte(text[text.size() - length])) ++length;
  return length;
}

bool is_blank(std::string_view character) {
  return is_python_space(decode_utf8(character, 0).code_point);
}

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

void append(std::string& text, const std::string& part, int64_t count) {
  for (int64_t i = 0; i < count; ++i) text += part;
}

}  // namespace

size_t find_linear(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  charge_work(static_cast<int64_t>(((text.size() - from) >> 8) * std::min<size_t>(part.size() / 16 + 1, 16)));
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found != nullptr ? static_cast<size_t>(static_cast<const char*>(found) - text.data())
                          : std::string_view::npos;
}

size_t rfind_linear(std::string_view text, std::string_view part) {
  charge_work(static_cast<int64_t>((text.size() >> 8) * (part.size() / 16 + 1)));
  return text.rfind(part);
}

int64_t count_characters(std::string_view text) {
  charge_work(static_cast<int64_t>(text.size() >> 5));
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).length) ++count;
  return count;
}

std::vector<size_t> character_starts(std::string_view text) {
  charge_work(static_cast<int64_t>(text.size() >> 5));
  std::vector<size_t> starts;
  starts.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).length) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

std::string_view stripped(std::string_view text, bool left, bool right, const std::string* these) {
  const auto goes = [&](std::string_view character) {
    return these != nullptr ? these->find(character) != std::string::npos : is_blank(character);
  };
  while (left && !text.empty()) {
    const size_t length = decode_utf8(text, 0).length;
    if (!goes(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    const size_t length = last_length(text);
    if (!goes(text.substr(text.size() - length))) break;
    text.remove_suffix(length);
  }
  return text;
}

std::string replaced(const std::string& text, const std::string& old, const std::string& by, int64_t most) {
  std::string all;
  size_t at = 0;
  for (; most != 0; --most) {
    // An empty `old` matches before every character and at the end.
    const size_t next = at < text.size() ? at + decode_utf8(text, at).length : text.size();
    const size_t found = old.empty() ? at : find_linear(text, old, at);
    if (found == std::string::npos) break;
    all.append(text, at, found - at);
    all += by;
    check_size(all);
    at = found + old.size();
    if (!old.empty()) continue;
    all.append(text, at, next - at);
    if (at == text.size()) return all;
    at = next;
  }
  all.append(text, at);
  return all;
}

std::vector<std::string> split_at(const std::string& text, const std::string& separator, int64_t most) {
  if (separator.empty()) throw InputError("a text is split at an empty one");
  std::vector<std::string> parts;
  size_t at = 0;
  for (; most != 0; --most) {
    const size_t found = find_linear(text, separator, at);
    if (found == std::string::npos) break;
    parts.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  parts.push_back(text.substr(at));
  charge_work(std::ssize(parts));
  return parts;
}

std::vector<std::string> split_from_right(const std::string& text, const std::string& separator,
                                          int64_t most) {
  if (separator.empty()) throw InputError("a text is split at an empty one");
  std::vector<std::string> parts;
  std::string_view rest = text;
  for (; most != 0; --most) {
    const size_t found = rfind_linear(rest, separator);
    if (found == std::string_view::npos) break;
    parts.emplace_back(rest.substr(found + separator.size()));
    rest = rest.substr(0, found);
  }
  parts.emplace_back(rest);
  std::reverse(parts.begin(), parts.end());
  charge_work(std::ssize(parts));
  return parts;
}

std::vector<std::string> split_at_whitespace(std::string_view text, int64_t most) {
  std::vector<std::string> parts;
  for (std::string_view rest = stripped(text, true, false); !rest.empty(); --most) {
    size_t end = 0;
    while (end < rest.size() && most != 0) {
      const size_t length = decode_utf8(rest, end).length;
      if (is_blank(rest.substr(end, length))) break;
      end += length;
    }
    if (most == 0) end = rest.size();
    parts.emplace_back(rest.substr(0, end));
    rest = stripped(rest.substr(end), true, false);
  }
  charge_work(std::ssize(parts));
  return parts;
}

std::vector<std::string> split_at_whitespace_from_right(std::string_view text, int64_t most) {
  std::vector<std::string> parts;
  for (std::string_view rest = stripped(text, false, true); !rest.empty(); --most) {
    size_t begin = rest.size();
    while (begin > 0 && most != 0) {
      const size_t length = last_length(rest.substr(0, begin));
      if (is_blank(rest.substr(begin - length, length))) break;
      begin -= length;
    }
    if (most == 0) begin = 0;
    parts.emplace_back(rest.substr(begin));
    rest = stripped(rest.substr(0, begin), false, true);
  }
  std::reverse(parts.begin(), parts.end());
  charge_work(std::ssize(parts));
  return parts;
}

std::vector<std::string> splitlines(const std::string& text, bool with_ends) {
  charge_work(static_cast<int64_t>(text.size() >> 5));
  std::vector<std::string> lines;
  for (size_t begin = 0, at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    size_t next = at + step.length;
    if (ends_line(step.code_point)) {
      if (step.code_point == U'\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (with_ends ? next : at) - begin));
      begin = next;
    } else if (next == text.size()) {
      lines.push_back(text.substr(begin));
    }
    at = next;
  }
  charge_work(std::ssize(lines));
  return lines;
}

std::string padded(const std::string& text, int64_t width, const std::string& fill, int side) {
  if (count_characters(fill) != 1) throw InputError("expected one character to fill with");
  const int64_t more = width - count_characters(text);
  if (more <= 0) return text;
  check_size(static_cast<size_t>(std::min<int64_t>(more, max_text_bytes + 1)) * fill.size() + text.size());
  // As in CPython: the extra fill character goes to the left when the width is odd.
  const int64_t left = side < 0 ? 0 : side > 0 ? more : more / 2 + (more & width & 1);
  std::string all;
  append(all, fill, left);
  all += text;
  append(all, fill, more - left);
  return all;
}

}  // namespace clover::data::jinja
