#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <functional>
#include <map>

#include "data/chat/jinja/values/texts.h"
#include "data/text/character_kind.h"
#include "data/text/utf8.h"

// Case mapping and character classes of Python's str.
namespace clover::data::jinja {
namespace {

std::string utf8_of(const icu::UnicodeString& text) {
  std::string result_text;
  text.toUTF8String(result_text);
  return result_text;
}

icu::UnicodeString from_utf8(std::string_view text) {
  charge_template_work(static_cast<int64_t>(text.size() >> 4));
  return icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

UChar32 code_of(char32_t c) {
  return static_cast<UChar32>(c);
}

std::string upper_of(char32_t c) {
  return utf8_of(icu::UnicodeString(code_of(c)).toUpper(icu::Locale::getRoot()));
}

std::string title_of(char32_t c) {
  // ICU's toTitle skips to the first letter of a text; for a single character it gives its title case.
  return utf8_of(icu::UnicodeString(code_of(c))
                     .toTitle(nullptr, icu::Locale::getRoot(), U_TITLECASE_NO_BREAK_ADJUSTMENT));
}

/// Applies `map` to each character; it gets the character and its bytes in the text.
std::string mapped(const std::string& text,
                   const std::function<std::string(char32_t, std::string_view)>& map) {
  charge_template_work(static_cast<int64_t>(text.size() >> 2));
  std::string result_text;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    result_text += map(step.code_point, std::string_view(text).substr(at, step.length));
    at += step.length;
  }
  check_size(result_text);
  return result_text;
}

/// The lower case of the character at `at`.  A sigma at the end of a word becomes a final sigma, so a sigma
/// is lowered together with 64 bytes on both sides, and cut out of the result.
std::string lower_at(const std::string& text, size_t at, char32_t c, size_t length) {
  if (c != U'\u03A3') return utf8_of(icu::UnicodeString(code_of(c)).toLower(icu::Locale::getRoot()));
  const size_t begin = at > 64 ? at - 64 : 0;
  const std::string lowered = lower(text.substr(begin, at + length - begin) + text.substr(at + length, 64));
  const std::string tail = lower(text.substr(at + length, 64));
  return lowered.size() >= tail.size() + 2 ? lowered.substr(lowered.size() - tail.size() - 2, 2) : "\u03C3";
}

bool is_cased(char32_t c) {
  return u_hasBinaryProperty(code_of(c), UCHAR_UPPERCASE) ||
         u_hasBinaryProperty(code_of(c), UCHAR_LOWERCASE) || u_charType(code_of(c)) == U_TITLECASE_LETTER;
}

int numeric_type(char32_t c) {
  return u_getIntPropertyValue(code_of(c), UCHAR_NUMERIC_TYPE);
}

bool is_in_case(const std::string& text, UProperty property) {
  bool any_found = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    if (u_hasBinaryProperty(code_of(step.code_point), property)) {
      any_found = true;
    } else if (is_cased(step.code_point)) {
      return false;
    }
    at += step.length;
  }
  return any_found;
}

bool is_in_title(const std::string& text) {
  bool in_word = false, any_found = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    const UChar32 c = code_of(step.code_point);
    if (u_hasBinaryProperty(c, UCHAR_UPPERCASE) || u_charType(c) == U_TITLECASE_LETTER) {
      if (in_word) return false;
      in_word = any_found = true;
    } else if (u_hasBinaryProperty(c, UCHAR_LOWERCASE)) {
      if (!in_word) return false;
      any_found = true;
    } else {
      in_word = false;
    }
    at += step.length;
  }
  return any_found;
}

bool is_word(char32_t c) {
  return c == U'_' || u_isalpha(code_of(c)) || numeric_type(c) != U_NT_NONE;
}

bool starts_word_after(char32_t c) {
  return is_python_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
}

}  // namespace

std::string upper(const std::string& text) {
  return utf8_of(from_utf8(text).toUpper(icu::Locale::getRoot()));
}
std::string lower(const std::string& text) {
  return utf8_of(from_utf8(text).toLower(icu::Locale::getRoot()));
}
std::string casefold(const std::string& text) {
  return utf8_of(from_utf8(text).foldCase());
}

std::string swapcase(const std::string& text) {
  size_t at = 0;
  return mapped(text, [&](char32_t c, std::string_view character) {
    const size_t position = std::exchange(at, at + character.size());
    if (u_hasBinaryProperty(code_of(c), UCHAR_UPPERCASE))
      return lower_at(text, position, c, character.size());
    return u_hasBinaryProperty(code_of(c), UCHAR_LOWERCASE) ? upper_of(c) : std::string(character);
  });
}

std::string capitalized(const std::string& text) {
  size_t at = 0;
  return mapped(text, [&](char32_t c, std::string_view character) {
    const size_t position = std::exchange(at, at + character.size());
    return position == 0 ? title_of(c) : lower_at(text, position, c, character.size());
  });
}

std::string title(const std::string& text) {
  bool in_word = false;
  size_t at = 0;
  return mapped(text, [&](char32_t c, std::string_view character) {
    const size_t position = std::exchange(at, at + character.size());
    std::string result = in_word ? lower_at(text, position, c, character.size()) : title_of(c);
    in_word = is_cased(c);
    return result;
  });
}

std::string jinja_title(const std::string& text) {
  charge_template_work(static_cast<int64_t>(text.size() >> 2));
  std::string result_text;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step first = decode_utf8(text, at);
    size_t end = at + first.length;
    if (starts_word_after(first.code_point)) {
      result_text.append(text, at, first.length);
    } else {
      const size_t tail = end;
      while (end < text.size() && !starts_word_after(decode_utf8(text, end).code_point))
        end += decode_utf8(text, end).length;
      result_text += upper_of(first.code_point) + lower(text.substr(tail, end - tail));
    }
    at = end;
  }
  return result_text;
}

std::string with_ascii_digits(const std::string& text) {
  std::string result_text;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    const bool digit =
        step.code_point >= 0x80 && u_charType(code_of(step.code_point)) == U_DECIMAL_DIGIT_NUMBER;
    if (digit) {
      result_text += static_cast<char>('0' + u_charDigitValue(code_of(step.code_point)));
    } else {
      result_text.append(text, at, step.length);
    }
    at += step.length;
  }
  return result_text;
}

bool is_printable(char32_t c) {
  if (c == U' ') return true;
  return (U_GET_GC_MASK(code_of(c)) & (U_GC_C_MASK | U_GC_Z_MASK)) == 0;
}

bool is_of_kind(const std::string& name, const std::string& text) {
  charge_template_work(static_cast<int64_t>(text.size() >> 6));
  if (name == "islower") return is_in_case(text, UCHAR_LOWERCASE);
  if (name == "isupper") return is_in_case(text, UCHAR_UPPERCASE);
  if (name == "istitle") return is_in_title(text);
  static const std::map<std::string, bool (*)(char32_t, bool first)> kinds{
      {"isalpha", [](char32_t c, bool) { return u_isalpha(code_of(c)) != 0; }},
      {"isalnum", [](char32_t c, bool) { return u_isalpha(code_of(c)) || numeric_type(c) != U_NT_NONE; }},
      {"isdecimal", [](char32_t c, bool) { return u_charType(code_of(c)) == U_DECIMAL_DIGIT_NUMBER; }},
      {"isdigit",
       [](char32_t c, bool) { return numeric_type(c) == U_NT_DECIMAL || numeric_type(c) == U_NT_DIGIT; }},
      {"isnumeric", [](char32_t c, bool) { return numeric_type(c) != U_NT_NONE; }},
      {"isspace", [](char32_t c, bool) { return is_python_space(c); }},
      {"isascii", [](char32_t c, bool) { return c < 0x80; }},
      {"isprintable", [](char32_t c, bool) { return is_printable(c); }},
      {"isidentifier",
       [](char32_t c, bool first) {
         return c == U'_' || u_hasBinaryProperty(code_of(c), first ? UCHAR_XID_START : UCHAR_XID_CONTINUE);
       }},
  };
  const auto of_kind = kinds.at(name);
  bool first = true;
  for (size_t at = 0; at < text.size(); first = false) {
    const Utf8Step step = decode_utf8(text, at);
    if (!of_kind(step.code_point, first)) return false;
    at += step.length;
  }
  return !text.empty() || name == "isascii" || name == "isprintable";
}

int64_t count_words(const std::string& text) {
  charge_template_work(static_cast<int64_t>(text.size() >> 6));
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    const bool word = is_word(step.code_point);
    count += word && !in_word;
    in_word = word;
    at += step.length;
  }
  return count;
}

}  // namespace clover::data::jinja
