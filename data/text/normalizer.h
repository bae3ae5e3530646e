#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "data/text/utf8.h"

namespace clover::data {

/// What a `tokenizer.json` does to text before it is cut: Unicode's canonical composition (NFC), texts put in
/// front or replaced, spaces trimmed or squeezed.
class Normalizer {
 public:
  struct Step {
    enum class Kind {
      compose,
      prepend,         // `content`, unless there is no text
      replace,         // `pattern` by `content`, everywhere
      trim,            // spaces at both ends
      squeeze,         // runs of spaces to one
      replace_leading  // `pattern` at the beginning by `content`
    };
    Kind kind;
    std::string pattern, content;
  };

  /// InputError (beginning with `where`) naming the type that is not supported.
  static Normalizer from_json(const nlohmann::json& config, const std::string& where);

  /// `text` is UTF-8 and must outlive the result.
  MappedText apply(std::string_view text) const;

  bool changes_nothing() const { return steps_.empty(); }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  void add(const nlohmann::json& config, const std::string& where);

  std::vector<Step> steps_;
};

}  // namespace clover::data
