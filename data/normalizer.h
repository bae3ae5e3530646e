#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

#include "data/utf8.h"

namespace clover::data {

/// What a `tokenizer.json` does to text before it is cut: nothing, or Unicode's canonical composition (NFC).
class Normalizer {
 public:
  /// InputError (beginning with `where`) naming the type that is not supported.
  static Normalizer from_json(const nlohmann::json& config, const std::string& where);

  /// `text` is UTF-8 and must outlive the result.
  MappedText apply(std::string_view text) const;

  bool changes_nothing() const { return !composes_; }

 private:
  bool composes_ = false;
};

}  // namespace clover::data
