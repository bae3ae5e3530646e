#pragma once

#include <cstdint>

namespace clover::data {

/// The character classes that pre-tokenizers' regular expressions use: `\p{L}`, `\p{N}`, `\s`, or none of
/// them.
enum class CharacterKind : uint8_t { end_of_text, letter, number, space, other };

/// The class by Unicode 16, also when the system's ICU is older.
CharacterKind kind_of(char32_t code_point);

/// Python's str.isspace() of one character, which Jinja's trim and strip() use.
bool is_python_space(char32_t code_point);

}  // namespace clover::data
