#include "data/text/character_kind.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <iterator>

namespace clover::data {
namespace {

struct Range {
  char32_t first, last;
  CharacterKind kind;
};

constexpr auto letter = CharacterKind::letter;
constexpr auto number = CharacterKind::number;

// Letters and numbers that Unicode 15.1 and 16 added.  The reference tokenizers know them, ICU 72 does not.
// The table is used for code points that ICU calls unassigned, so that token ids do not depend on the ICU
// version.
constexpr Range after_unicode_15[] = {
    {0x01C89, 0x01C8A, letter}, {0x0A7CB, 0x0A7CD, letter}, {0x0A7DA, 0x0A7DC, letter},
    {0x105C0, 0x105F3, letter}, {0x10D40, 0x10D49, number}, {0x10D4A, 0x10D65, letter},
    {0x10D6F, 0x10D85, letter}, {0x10EC2, 0x10EC4, letter}, {0x11380, 0x11389, letter},
    {0x1138B, 0x1138B, letter}, {0x1138E, 0x1138E, letter}, {0x11390, 0x113B5, letter},
    {0x113B7, 0x113B7, letter}, {0x113D1, 0x113D1, letter}, {0x113D3, 0x113D3, letter},
    {0x116D0, 0x116E3, number}, {0x11BC0, 0x11BE0, letter}, {0x11BF0, 0x11BF9, number},
    {0x13460, 0x143FA, letter}, {0x16100, 0x1611D, letter}, {0x16130, 0x16139, number},
    {0x16D40, 0x16D6C, letter}, {0x16D70, 0x16D79, number}, {0x18CFF, 0x18CFF, letter},
    {0x1CCF0, 0x1CCF9, number}, {0x1E5D0, 0x1E5ED, letter}, {0x1E5F0, 0x1E5F0, letter},
    {0x1E5F1, 0x1E5FA, number}, {0x2EBF0, 0x2EE5D, letter},
};

CharacterKind kind_in_unicode_16(char32_t code_point) {
  const auto* range = std::lower_bound(std::begin(after_unicode_15), std::end(after_unicode_15), code_point,
                                       [](const Range& r, char32_t c) { return r.last < c; });
  const bool inside = range != std::end(after_unicode_15) && range->first <= code_point;
  return inside ? range->kind : CharacterKind::other;
}

}  // namespace

CharacterKind kind_of(char32_t code_point) {
  const auto c = static_cast<UChar32>(code_point);
  const uint32_t category = U_MASK(u_charType(c));
  if (category & U_GC_L_MASK) return CharacterKind::letter;
  if (category & U_GC_N_MASK) return CharacterKind::number;
  if (category & U_GC_CN_MASK) return kind_in_unicode_16(code_point);
  return u_isUWhiteSpace(c) ? CharacterKind::space : CharacterKind::other;
}

bool is_python_space(char32_t code_point) {
  const auto c = static_cast<UChar32>(code_point);
  const auto direction = u_charDirection(c);
  return u_charType(c) == U_SPACE_SEPARATOR || direction == U_WHITE_SPACE_NEUTRAL ||
         direction == U_BLOCK_SEPARATOR || direction == U_SEGMENT_SEPARATOR;
}

}  // namespace clover::data
