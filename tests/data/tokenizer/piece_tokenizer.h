#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"
#include "data/training/training_input.h"

namespace clover::test {

/// A tokenizer for tests: each byte is a token, except for a few longer pieces and special tokens.
class PieceTokenizer : public data::Tokenizer {
 public:
  explicit PieceTokenizer(bool adds_bos = false) : adds_bos_(adds_bos) {}

  data::Encoding encode_with_spans(std::string_view text, const data::EncodeOptions& options) const override {
    data::Encoding encoding;
    if (options.add_bos) {
      encoding.ids.push_back(bos_id);
      encoding.spans.emplace_back(0, 0);
    }
    for (size_t at = 0; at < text.size();) {
      int64_t id = static_cast<unsigned char>(text[at]);
      size_t length = 1;
      for (size_t i = 0; i < std::size(pieces); ++i) {
        if (pieces[i].size() > length && text.substr(at).starts_with(pieces[i])) {
          id = 256 + static_cast<int64_t>(i);
          length = pieces[i].size();
        }
      }
      encoding.ids.push_back(id);
      encoding.spans.emplace_back(at, at + length);
      at += length;
    }
    return encoding;
  }
  std::string token_bytes(int64_t id, bool) const override {
    return id < 256 ? std::string(1, static_cast<char>(id)) : std::string(pieces[id - 256]);
  }
  bool is_special(int64_t id) const override { return id >= 256 && id < 260; }
  std::optional<int64_t> token_id(std::string_view) const override { return {}; }
  int64_t vocab_size() const override { return 256 + std::size(pieces); }
  std::optional<int64_t> bos() const override { return bos_id; }
  bool adds_bos() const override { return adds_bos_; }
  std::string hash() const override { return "0"; }

  static constexpr std::string_view pieces[] = {"<|im_start|>", "<|im_end|>", "<s>", "</s>", "the", "\nJoin"};
  static constexpr int64_t im_end = 257, bos_id = 258, the = 260;

 private:
  bool adds_bos_;
};

/// A sample's text with the supervised parts in braces.
inline std::string marked_text(const data::TrainingSample& sample, const data::Tokenizer& tokenizer) {
  std::string text;
  bool inside = false;
  for (size_t i = 0; i <= sample.ids.size(); ++i) {
    const bool supervised = i < sample.ids.size() && sample.supervised[i];
    if (supervised != inside) text += supervised ? "{" : "}";
    inside = supervised;
    if (i < sample.ids.size()) text += tokenizer.token_bytes(sample.ids[i], i == 0);
  }
  return text;
}

}  // namespace clover::test
