#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "data/text/utf8.h"

namespace clover::data {

/// The `normalizer` of a `tokenizer.json`, which is applied before pre-tokenisation: NFC, a text put in
/// front, replaced texts, and removed or collapsed spaces.
class Normalizer {
 public:
  struct Step {
    enum class Kind {
      compose,         // Unicode's canonical composition, NFC
      prepend,         // puts `content` in front of a text that is not empty
      replace,         // replaces `pattern` by `content` everywhere
      trim,            // removes spaces at both ends
      squeeze,         // replaces runs of spaces by one space
      replace_leading  // replaces `pattern` by `content` at the beginning
    };
    Kind kind;
    std::string pattern, content;
  };

  /// InputError (beginning with `where`) naming the type that is not supported.
  static Normalizer from_json(const nlohmann::json& config, const std::string& where);

  /// `text` is UTF-8 and must outlive the result.
  AlignedText apply(std::string_view text) const;

  bool changes_nothing() const { return steps_.empty(); }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  void add(const nlohmann::json& config, const std::string& where);

  std::vector<Step> steps_;
};

}  // namespace clover::data
