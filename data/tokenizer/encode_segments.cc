#include "data/tokenizer/encode_segments.h"

#include <string>

#include "data/files/error.h"

namespace clover::data {

Encoding encode_segments(std::string_view text, bool parse_special, std::optional<int64_t> bos,
                         int64_t max_gib, const AddedTokenTrie& added, const EncodeSegment& encode_segment) {
  if (text.size() >= static_cast<size_t>(max_gib) << 30) {
    throw InputError("text to tokenize: expected at most " + std::to_string(max_gib) + " GiB, found " +
                     std::to_string(text.size()) + " bytes");
  }
  Encoding encoding;
  encoding.ids.reserve(text.size() / 3 + 1);
  encoding.spans.reserve(text.size() / 3 + 1);
  if (bos) {
    encoding.ids.push_back(*bos);
    encoding.spans.emplace_back(0, 0);
  }
  const AlignedText repaired = repair_utf8_aligned(text);
  for (const AddedTokenTrie::Part& part : added.split(repaired.text(), parse_special)) {
    if (part.token != nullptr) {
      encoding.ids.push_back(part.token->id);
      encoding.spans.push_back(repaired.source_range(part.begin, part.end));
    } else {
      encode_segment(repaired.text().substr(part.begin, part.end - part.begin), part.begin, repaired,
                     encoding);
    }
  }
  return encoding;
}

}  // namespace clover::data
