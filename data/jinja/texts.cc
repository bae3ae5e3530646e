#include "data/jinja/texts.h"

#include <unicode/uchar.h>

#include <functional>

#include "data/character_kind.h"
#include "data/error.h"
#include "data/utf8.h"

namespace clover::data::jinja {
namespace {

std::string mapped(const std::string& text, const std::function<char32_t(char32_t, bool first)>& map) {
  std::string all;
  bool first = true;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    append_utf8(all, map(step.code_point, first));
    first = false;
    at += step.length;
  }
  return all;
}

char32_t upper(char32_t c) {
  return static_cast<char32_t>(u_toupper(static_cast<UChar32>(c)));
}

char32_t lower(char32_t c) {
  return static_cast<char32_t>(u_tolower(static_cast<UChar32>(c)));
}

}  // namespace

void check_size(const std::string& text) {
  if (text.size() > most_of_a_value) throw InputError("a text grows beyond 64 MiB");
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t length = decode_utf8(text, at).length;
    characters.push_back(text.substr(at, length));
    at += length;
  }
  return characters;
}

std::string_view stripped(std::string_view text, bool left, bool right, const std::string* these) {
  const auto goes = [&](std::string_view character) {
    return these != nullptr ? these->find(character) != std::string::npos
                            : is_python_space(decode_utf8(character, 0).code_point);
  };
  while (left && !text.empty()) {
    const size_t length = decode_utf8(text, 0).length;
    if (!goes(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    size_t length = 1;  // of the last character, whose first byte is not one that continues
    while (length < 4 && length < text.size() && continues_character(text[text.size() - length])) ++length;
    if (!goes(text.substr(text.size() - length))) break;
    text.remove_suffix(length);
  }
  return text;
}

std::string in_upper(const std::string& text) {
  return mapped(text, [](char32_t c, bool) { return upper(c); });
}

std::string in_lower(const std::string& text) {
  return mapped(text, [](char32_t c, bool) { return lower(c); });
}

std::string capitalized(const std::string& text) {
  return mapped(text, [](char32_t c, bool first) { return first ? upper(c) : lower(c); });
}

std::string titled(const std::string& text) {
  bool inside = false;
  return mapped(text, [&](char32_t c, bool) {
    const char32_t as = inside ? lower(c) : upper(c);
    inside = u_isalpha(static_cast<UChar32>(c));
    return as;
  });
}

std::string with_titles(const std::string& text) {
  bool inside = false;
  return mapped(text, [&](char32_t c, bool) {
    const char32_t as = inside ? lower(c) : upper(c);
    inside = !is_python_space(c) && std::u32string_view(U"-({[<").find(c) == std::u32string_view::npos;
    return as;
  });
}

std::string replaced(const std::string& text, const std::string& old, const std::string& by, int64_t most) {
  std::string all;
  size_t at = 0;
  while (most != 0 && !old.empty()) {
    const size_t found = text.find(old, at);
    if (found == std::string::npos) break;
    all += text.substr(at, found - at) + by;
    check_size(all);
    at = found + old.size();
    --most;
  }
  return all + text.substr(at);
}

std::vector<std::string> split_at(const std::string& text, const std::string& separator, int64_t most) {
  if (separator.empty()) throw InputError("a text is split at an empty one");
  std::vector<std::string> parts;
  size_t at = 0;
  for (; most != 0; --most) {
    const size_t found = text.find(separator, at);
    if (found == std::string::npos) break;
    parts.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<std::string> split_at_whitespace(std::string_view text, int64_t most) {
  std::vector<std::string> parts;
  for (std::string_view rest = stripped(text, true, true); !rest.empty(); --most) {
    size_t end = 0;
    while (end < rest.size() && most != 0) {
      const size_t length = decode_utf8(rest, end).length;
      if (stripped(rest.substr(end, length), true, false).empty()) break;
      end += length;
    }
    if (most == 0) end = rest.size();
    parts.emplace_back(rest.substr(0, end));
    rest = stripped(rest.substr(end), true, false);
  }
  return parts;
}

}  // namespace clover::data::jinja
