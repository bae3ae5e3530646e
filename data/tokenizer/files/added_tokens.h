#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace clover::data {

/// A token found in the text as it is written, before and apart from the model's own vocabulary.
struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool special = false;      // a control token: parsed on request only, left out of decoded text
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the whitespace before it
  bool rstrip = false;       // takes the whitespace behind it
  bool normalized = false;   // looked for after normalisation
};

/// The added tokens of one stage (before or after normalisation), and the cutting of text at them.
class AddedTokens {
 public:
  /// A token with empty content is never found.
  void add(const AddedToken& token);

  /// A part of a text: an added token, or what lies between two (token == nullptr).
  struct Part {
    size_t begin, end;
    const AddedToken* token;
  };

  /// Parts that cover `text` (UTF-8) in order.  Matches are leftmost-longest and do not overlap; one of a
  /// special token is taken as plain text when `parse_special` is false, and so is one that its single_word
  /// flag rejects.
  std::vector<Part> split(std::string_view text, bool parse_special) const;

 private:
  struct Node {
    std::map<char, int32_t> next;
    int32_t token = -1;
  };
  // Longest token that begins at `position`, or null.
  const AddedToken* longest_at(std::string_view text, size_t position) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{Node{}};
  std::array<bool, 256> begins_{};  // bytes that begin a token
};

}  // namespace clover::data
