#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace clover::data {

/// Cuts a file's text into records: its lines, or the elements if it is one JSON array.  It does not parse
/// them; the end of an element is found by counting brackets outside of strings.
class RecordTexts {
 public:
  explicit RecordTexts(std::string_view text);

  struct Record {
    std::string_view text;
    int64_t line = 0;   // the line on which it begins, from 1
    std::string error;  // a syntax error of the array at this place; "": none
  };
  /// The next record that is not blank; false at the end.
  bool next(Record& record);

 private:
  bool next_line(Record& record);
  bool next_element(Record& record);
  void skip_blanks();

  std::string_view rest_;
  int64_t line_ = 1;
  bool is_array_ = false, first_ = true, ended_ = false;
};

/// Whether a text is one JSON array, and not lines of which the first is a list by mistake.
bool is_json_array(std::string_view text);

}  // namespace clover::data
