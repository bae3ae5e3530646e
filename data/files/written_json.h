#pragma once

#include <map>
#include <string>
#include <string_view>

namespace clover::data {

/// A text of JSON whose numbers are to come back as they are written, which parsing them does not promise:
/// 12345678901234567890123, 0.10, 1E5, 1e400.
class WrittenJson {
 public:
  /// `text` is borrowed and need not be JSON.
  explicit WrittenJson(std::string_view text);

  /// The text to parse: numbers larger than every double, which parsers refuse, stand in quotes.
  std::string_view readable() const { return has_huge_ ? std::string_view(readable_) : text_; }

  /// Of the object that the text is, those members that hold a number which would come back otherwise, as
  /// written but for blanks.  Only for a text whose `readable` was parsed.
  std::map<std::string, std::string> members_as_written() const;

 private:
  std::string_view text_;
  std::string readable_;
  bool has_huge_ = false;     // numbers
  bool all_the_same_ = true;  // numbers
};

}  // namespace clover::data
