#pragma once

#include <cstdint>

namespace clover::data {

/// What tokenizers' patterns ask of a character: `\p{L}`, `\p{N}`, `\s`, or none of them.
enum class CharacterKind : uint8_t { end_of_text, letter, number, space, other };

/// By Unicode 16, with an older ICU too.
CharacterKind kind_of(char32_t code_point);

/// Python's str.isspace for one character: what Jinja's trim and strip() drop.
bool is_python_space(char32_t code_point);

}  // namespace clover::data
