#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace clover::data {

/// One character decoded from bytes that should be UTF-8.  Invalid bytes are grouped into maximal subparts
/// (WHATWG, Unicode 3.9): the longest prefix of a character, or one byte.
struct Utf8Step {
  char32_t code_point;  // U+FFFD for an invalid part
  uint8_t length;       // bytes read, 1 to 4
  bool valid;           // whether the bytes are a character
  bool truncated;       // invalid only because the text ends: more bytes could complete the character
};

/// Whether the byte is a continuation byte of a multi-byte character.
inline bool is_continuation_byte(char byte) {
  return (byte & 0xC0) == 0x80;
}

/// Decodes the character at byte `position` < text.size().
Utf8Step decode_utf8(std::string_view text, size_t position);

void append_utf8(std::string& text, char32_t code_point);

bool is_utf8(std::string_view text);

/// The text with U+FFFD in place of each invalid part.
std::string repair_utf8(std::string_view text);

/// A text made from a source text, with the range of source bytes that each of its bytes came from (the
/// "alignments" of the tokenizers library).
class AlignedText {
 public:
  /// The unchanged source: each byte is aligned with itself.
  explicit AlignedText(std::string_view source) : source_(source), unchanged_(true) {}
  /// An empty text to append to.
  AlignedText() : unchanged_(false) {}

  /// Appends `bytes`, which replace bytes [begin, end) of the source.
  void append_replacement(std::string_view bytes, size_t begin, size_t end);
  /// Appends `bytes`, a copy of source bytes that begin at `begin`.
  void append_copy(std::string_view bytes, size_t begin);

  /// Whether the text is the source itself.
  bool is_unchanged() const { return unchanged_; }
  /// The same text, aligned with the source of `inner`.  The source of this one must be the text of `inner`.
  AlignedText composed_with(const AlignedText& inner) &&;

  std::string_view text() const { return unchanged_ ? source_ : std::string_view(text_); }
  /// The byte range of the source from which [begin, end) of the text came.  An empty range gives the empty
  /// range where the source of the byte `begin` starts.
  std::pair<size_t, size_t> source_range(size_t begin, size_t end) const;

 private:
  std::string_view source_;
  bool unchanged_;
  std::string text_;
  std::vector<std::pair<size_t, size_t>> ranges_;  // source range of each byte of text_
  size_t source_end_ = 0;                          // where the source range of the last appended bytes ends
};

/// As `repair_utf8`, with alignments, and without a copy when the text is valid.  `text` must outlive the
/// result.
AlignedText repair_utf8_aligned(std::string_view text);

}  // namespace clover::data
