#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/text/utf8.h"

namespace clover::data {

/// The `pre_tokenizer` of a `tokenizer.json` of SentencePiece kind: writes spaces as a mark, puts one in
/// front, and cuts before marks where it is told to.
class Metaspace {
 public:
  /// None for null.  InputError (beginning with `where`) naming what is not supported.
  static Metaspace from_json(const nlohmann::json& config, const std::string& where);

  /// `begins_text`: the text is the first part of the whole.  `text` must outlive the result.
  MappedText apply(std::string_view text, bool begins_text) const;

  /// Byte ranges [begin, end) that cover an applied text, in order.
  std::vector<std::pair<size_t, size_t>> split(std::string_view text) const;

 private:
  enum class Prepend { always, first, never };
  struct Stage {
    std::string mark;
    Prepend prepend;
    bool splits;
  };
  void add(const nlohmann::json& config, const std::string& where);

  std::vector<Stage> stages_;
};

}  // namespace clover::data
