#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/jinja/values/limits.h"

// Texts as Python's str has them: a character is a code point.
namespace clover::data::jinja {

int64_t characters_in(std::string_view text);
/// The byte where each begins, and where the last one ends.
std::vector<size_t> character_starts(std::string_view text);
/// str.strip: of whitespace, or of any of `these` characters.
std::string_view stripped(std::string_view text, bool left, bool right, const std::string* these = nullptr);

std::string in_upper(const std::string& text);
std::string in_lower(const std::string& text);
std::string with_cases_swapped(const std::string& text);
std::string case_folded(const std::string& text);
std::string capitalized(const std::string& text);
std::string titled(const std::string& text);  // str.title(): a word is letters
std::string with_titles(
    const std::string& text);  // Jinja's: it begins behind whitespace, a hyphen, a bracket

/// With the digits of other scripts as int() reads them.
std::string with_ascii_digits(const std::string& text);

/// Whether repr() writes a character as it is.
bool is_printable(char32_t character);
/// str.isalpha and the like, by its name.
bool is_of_kind(const std::string& name, const std::string& text);
/// The words of letters, digits and underscores.
int64_t words_in(const std::string& text);

/// Where a part is found, at or behind `from`; npos where it is nowhere.  Linear for parts of any length.
size_t found_at(std::string_view text, std::string_view part, size_t from = 0);
size_t found_from_right(std::string_view text, std::string_view part);

/// str.replace, of the first `most` (-1: all).
std::string replaced(const std::string& text, const std::string& old, const std::string& by, int64_t most);
/// str.split at a text, `most` times (-1: as often as there is one), or at whitespace; from the right:
/// rsplit.
std::vector<std::string> split_at(const std::string& text, const std::string& separator, int64_t most);
std::vector<std::string> split_at_whitespace(std::string_view text, int64_t most);
std::vector<std::string> split_from_right(const std::string& text, const std::string& separator,
                                          int64_t most);
std::vector<std::string> split_at_whitespace_from_right(std::string_view text, int64_t most);
/// str.splitlines().
std::vector<std::string> lines_of(const std::string& text, bool with_ends);
/// str.center: -1 to the left, 0 in the middle, 1 to the right of `width` characters.
std::string padded(const std::string& text, int64_t width, const std::string& fill, int side);

}  // namespace clover::data::jinja
