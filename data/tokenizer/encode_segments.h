#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "data/text/utf8.h"
#include "data/tokenizer/files/added_tokens.h"
#include "data/tokenizer/tokenizer.h"

namespace clover::data {

/// Encodes `segment`, a part of the text between added tokens, and appends its tokens to the encoding.  The
/// segment begins at byte `begin` of `repaired`, the whole text with U+FFFD in place of invalid UTF-8.
using EncodeSegment = std::function<void(std::string_view segment, size_t begin, const AlignedText& repaired,
                                         Encoding& encoding)>;

/// The part of encoding that all tokenizers share.  It puts `bos` first if there is one, repairs invalid
/// UTF-8, splits the text at the tokens of `added`, and calls `encode_segment` for each part between them.
/// InputError for a text of `max_gib` GiB or more.
Encoding encode_segments(std::string_view text, bool parse_special, std::optional<int64_t> bos,
                         int64_t max_gib, const AddedTokenTrie& added, const EncodeSegment& encode_segment);

}  // namespace clover::data
