#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "data/text/utf8.h"
#include "data/tokenizer/files/added_tokens.h"
#include "data/tokenizer/tokenizer.h"

namespace clover::data {

/// Encodes a segment between added tokens and appends to the encoding.  `segment` begins at byte `begin` of
/// the text of `repaired`.
using EncodeSegment = std::function<void(std::string_view segment, size_t begin, const AlignedText& repaired,
                                         Encoding& encoding)>;

/// The part of encoding that all tokenizers share: puts `bos` first if there is one, repairs invalid UTF-8,
/// splits the text at added tokens, and calls `encode_segment` for what lies between them.  InputError for a
/// text of `max_gib` GiB or more.
Encoding encode_segments(std::string_view text, bool parse_special, std::optional<int64_t> bos,
                         int64_t max_gib, const AddedTokenTrie& added, const EncodeSegment& encode_segment);

}  // namespace clover::data
