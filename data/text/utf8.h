#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace clover::data {

/// One step through bytes that should be UTF-8.  A broken part is its maximal subpart (WHATWG, Unicode 3.9):
/// the longest beginning of a character there, or one byte.
struct Utf8Step {
  char32_t code_point;  // U+FFFD for a broken part
  uint8_t length;       // bytes read, 1 to 4
  bool valid;
  bool cut;  // broken only because the text ends here: more bytes could still make it a character
};

/// Whether a byte goes on with the character of the one before it.
inline bool continues_character(char byte) {
  return (byte & 0xC0) == 0x80;
}

/// Needs position < text.size().
Utf8Step decode_utf8(std::string_view text, size_t position);

void append_utf8(std::string& text, char32_t code_point);

bool is_utf8(std::string_view text);

/// The text with U+FFFD in place of each broken part.
std::string repair_utf8(std::string_view text);

/// A text made from another one, and where each of its bytes came from.
class MappedText {
 public:
  /// The same text: every byte is its own.
  explicit MappedText(std::string_view source) : source_(source), same_(true) {}
  /// An empty text to append to.
  MappedText() : same_(false) {}

  /// Appends `bytes`, all of which came from [begin, end) of the source.
  void append_replacement(std::string_view bytes, size_t begin, size_t end);
  /// Appends bytes copied from the source at `begin`, one by one.
  void append_copy(std::string_view bytes, size_t begin);

  /// Whether nothing was changed.
  bool is_source() const { return same_; }
  /// The same text with its places in the source of `inner`, from whose text it was made.
  MappedText over(const MappedText& inner) &&;

  std::string_view text() const { return same_ ? source_ : std::string_view(made_); }
  /// The source's byte range behind [begin, end) of the text.
  std::pair<size_t, size_t> source_range(size_t begin, size_t end) const;

 private:
  std::string_view source_;
  bool same_;
  std::string made_;
  std::vector<std::pair<size_t, size_t>> ranges_;  // of each byte of made_
  size_t source_end_ = 0;
};

/// As `repair_utf8`, without a copy when there is nothing to repair; `text` must outlive the result.
MappedText repair_utf8_mapped(std::string_view text);

}  // namespace clover::data
