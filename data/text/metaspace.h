#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/text/utf8.h"

namespace clover::data {

/// U+2581, which vocabularies of SentencePiece write for a space.
inline constexpr std::string_view space_mark = "\xE2\x96\x81";

/// The Metaspace `pre_tokenizer` of a `tokenizer.json` of SentencePiece kind.  As configured, it replaces
/// spaces by a mark (U+2581), puts a mark before the text, and splits the text before marks.
class Metaspace {
 public:
  /// A null `config` gives a Metaspace that changes nothing.  InputError (beginning with `where`) naming what
  /// is not supported.
  static Metaspace from_json(const nlohmann::json& config, const std::string& where);

  /// `begins_text`: `text` stands at the beginning of the text that is tokenised.  `text` must outlive the
  /// result.
  AlignedText apply(std::string_view text, bool begins_text) const;

  /// Byte ranges [begin, end) that cover a text made by `apply`, in order.
  std::vector<std::pair<size_t, size_t>> split(std::string_view text) const;

 private:
  enum class Prepend { always, first, never };  // first: only at the beginning of the tokenised text
  struct Stage {
    std::string mark;
    Prepend prepend;  // whether a mark is put before the text
    bool splits;      // whether the text is split before marks
  };
  void add(const nlohmann::json& config, const std::string& where);

  std::vector<Stage> stages_;
};

}  // namespace clover::data
