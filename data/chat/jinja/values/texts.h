#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/jinja/values/limits.h"

// Functions of Python's str.  Texts are UTF-8; a character is a code point.
namespace clover::data::jinja {

int64_t count_characters(std::string_view text);
/// The byte at which each character begins, and the size of the text.
std::vector<size_t> character_starts(std::string_view text);
/// str.strip, lstrip, rstrip: removes whitespace, or any of the characters `characters`.
std::string_view stripped(std::string_view text, bool left, bool right,
                          const std::string* characters = nullptr);

std::string upper(const std::string& text);
std::string lower(const std::string& text);
std::string swapcase(const std::string& text);
std::string casefold(const std::string& text);
std::string capitalized(const std::string& text);
std::string title(const std::string& text);  // str.title(): words consist of letters
/// jinja2's filter title: words begin after whitespace, a hyphen or an opening bracket.
std::string jinja_title(const std::string& text);

/// Replaces digits of other scripts by ASCII digits, as int() does.
std::string with_ascii_digits(const std::string& text);

/// Whether repr() writes the character without escaping it.
bool is_printable(char32_t character);
/// Whether a text is of a kind: str.isalpha() and the like.  `name`: that of the method.
bool is_of_kind(const std::string& name, const std::string& text);
/// The number of words of letters, digits and underscores.
int64_t count_words(const std::string& text);

/// str.find and str.rfind in bytes: npos when `part` is not found.  Linear time for any length of `part`.
size_t find_linear(std::string_view text, std::string_view part, size_t from = 0);
size_t rfind_linear(std::string_view text, std::string_view part);

/// str.replace of the first `max_count` occurrences (-1: all).
std::string replaced(const std::string& text, const std::string& old, const std::string& replacement,
                     int64_t max_count);
/// str.split at `separator` or at whitespace, at most `max_count` times (-1: no limit); from the right:
/// str.rsplit.
std::vector<std::string> split_at(const std::string& text, const std::string& separator, int64_t max_count);
std::vector<std::string> split_at_whitespace(std::string_view text, int64_t max_count);
std::vector<std::string> split_from_right(const std::string& text, const std::string& separator,
                                          int64_t max_count);
std::vector<std::string> split_at_whitespace_from_right(std::string_view text, int64_t max_count);
/// str.splitlines().
std::vector<std::string> splitlines(const std::string& text, bool with_ends);
/// Pads a text to `width` characters.  `side`: where the text goes, -1 left (str.ljust), 0 middle
/// (str.center), 1 right (str.rjust).
std::string padded(const std::string& text, int64_t width, const std::string& fill, int side);

}  // namespace clover::data::jinja
