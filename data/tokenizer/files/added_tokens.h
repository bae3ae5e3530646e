#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace clover::data {

/// An added token: the text is split at its occurrences, and the model encodes the parts between them.
struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool special = false;      // matched only with parse_special, left out of decoded text
  bool single_word = false;  // not matched inside a word
  bool lstrip = false;       // the match includes the whitespace before it
  bool rstrip = false;       // the match includes the whitespace after it
  bool normalized = false;   // matched in the normalised text
};

/// A trie of added tokens, and the splitting of text at them.  A tokenizer has two: one for the raw text, one
/// for the normalised text.
class AddedTokenTrie {
 public:
  /// A token with empty content never matches.
  void add(const AddedToken& token);

  /// A part of a text: an added token, or the text between two (token == nullptr).
  struct Part {
    size_t begin, end;
    const AddedToken* token;
  };

  /// Parts that cover `text` (UTF-8) in order.  Matches are leftmost-longest and do not overlap.  A match
  /// stays plain text when the token is special and `parse_special` is false, or when its single_word flag
  /// rejects it.
  std::vector<Part> split(std::string_view text, bool parse_special) const;

 private:
  struct Node {
    std::map<char, int32_t> next;  // byte to index in nodes_
    int32_t token = -1;            // the token that ends here, an index in tokens_; -1: none
  };
  // The longest token that begins at `position`, or null.
  const AddedToken* longest_at(std::string_view text, size_t position) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{Node{}};
  std::array<bool, 256> first_bytes_{};  // [byte]: whether a token begins with it
};

}  // namespace clover::data
