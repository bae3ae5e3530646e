#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace clover::data {

/// The `pre_tokenizer` of a byte-level `tokenizer.json`: cuts text into pieces that byte-pair merges do not
/// cross.  For each supported regular expression there is a hand-written scanner with the same result, in
/// linear time.
class PreTokenizer {
 public:
  /// How one stage cuts a text.  Each stage cuts the pieces of the stage before it.
  enum class Rule {
    gpt2,  // by the regular expression of that model family, as for the next two
    llama3,
    qwen2,
    each_digit,  // each digit by itself, and the text between digits
    digit_runs,  // runs of digits, and the text between them
  };

  explicit PreTokenizer(std::vector<Rule> rules) : rules_(std::move(rules)) {}

  /// InputError (beginning with `where`) naming the type or pattern that is not supported.
  static PreTokenizer from_json(const nlohmann::json& config, const std::string& where);

  /// Byte ranges [begin, end) that cover `text`, in order; `text` must be UTF-8.
  std::vector<std::pair<size_t, size_t>> split(std::string_view text) const;

  const std::vector<Rule>& rules() const { return rules_; }

 private:
  std::vector<Rule> rules_;
};

}  // namespace clover::data
