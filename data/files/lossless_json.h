#pragma once

#include <map>
#include <string>
#include <string_view>

namespace clover::data {

/// A JSON text whose numbers can be written out again exactly as they were.  Parsing and printing would
/// change some of them: 12345678901234567890123, 0.10, 1E5, 1e400.
class LosslessJson {
 public:
  /// `text` must outlive the object; it need not be valid JSON.
  explicit LosslessJson(std::string_view text);

  /// The text to parse: the text itself, with numbers beyond the range of double in quotes, since parsers
  /// refuse them.
  std::string_view parseable() const { return has_huge_ ? std::string_view(parseable_) : text_; }

  /// Those members of the outermost object that contain a number which parsing would change: name to JSON
  /// text as written, without whitespace.  Call it only after `parseable()` was parsed without an error.
  std::map<std::string, std::string> verbatim_members() const;

 private:
  std::string_view text_;
  std::string parseable_;
  bool has_huge_ = false;       // there are numbers beyond the range of double
  bool all_round_trip_ = true;  // parsing and printing changes no number
};

}  // namespace clover::data
