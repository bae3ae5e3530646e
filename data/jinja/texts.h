#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Texts as Python's str has them: a character is a code point.
namespace clover::data::jinja {

/// What a template may make of a text, or of any other value.
constexpr size_t most_of_a_value = size_t{64} << 20;
/// InputError where a text has grown beyond it.
void check_size(const std::string& text);

std::vector<std::string_view> characters_of(std::string_view text);
/// str.strip: of whitespace, or of any of `these` characters.
std::string_view stripped(std::string_view text, bool left, bool right, const std::string* these = nullptr);

std::string in_upper(const std::string& text);
std::string in_lower(const std::string& text);
std::string capitalized(const std::string& text);
std::string titled(const std::string& text);  // str.title(): a word is letters
std::string with_titles(
    const std::string& text);  // Jinja's: it begins behind whitespace, a hyphen, a bracket

/// str.replace, of the first `most` (-1: all).
std::string replaced(const std::string& text, const std::string& old, const std::string& by, int64_t most);
/// str.split at a text, `most` times (-1: as often as there is one), or at whitespace.
std::vector<std::string> split_at(const std::string& text, const std::string& separator, int64_t most);
std::vector<std::string> split_at_whitespace(std::string_view text, int64_t most);

}  // namespace clover::data::jinja
