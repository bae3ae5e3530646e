#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "data/text/utf8.h"
#include "data/tokenizer/files/added_tokens.h"
#include "data/tokenizer/tokenizer.h"

namespace clover::data {

/// Encodes what lies between added tokens: `segment`, which begins at byte `begin` of the repaired text, and
/// appends to the encoding.
using EncodeSegment = std::function<void(std::string_view segment, size_t begin, const MappedText& repaired,
                                         Encoding& encoding)>;

/// What every tokenizer does around its own work: `bos` (where there is one) first, broken UTF-8 repaired,
/// and `added` tokens taken out of the text.  InputError for a text of `most_gib` GiB or more.
Encoding encode_parts(std::string_view text, bool parse_special, std::optional<int64_t> bos, int64_t most_gib,
                      const AddedTokens& added, const EncodeSegment& encode_segment);

}  // namespace clover::data
