#pragma once

#include <cstdint>

namespace clover::data {

/// The character classes of pre-tokenizers' regular expressions: `\p{L}`, `\p{N}`, `\s`, or none of them.
/// end_of_text is for the position after the last character; `kind_of` never returns it.
enum class CharacterKind : uint8_t { end_of_text, letter, number, space, other };

/// The class of a character by Unicode 16, also when the system's ICU library is older.
CharacterKind kind_of(char32_t code_point);

/// Python's str.isspace() of one character, which Jinja's trim and strip() use.
bool is_python_space(char32_t code_point);

}  // namespace clover::data
