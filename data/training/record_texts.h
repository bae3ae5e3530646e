#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace clover::data {

/// Cuts a file's text into records: its lines, or the elements of the array if it is one JSON array.  It does
/// not parse them; the end of an element is found by counting brackets outside of strings.
class RecordTexts {
 public:
  explicit RecordTexts(std::string_view text);

  struct Record {
    std::string_view text;
    int64_t line = 0;   // the line of the file on which it begins, from 1
    std::string error;  // a syntax error of the array instead of a record; "": none
  };
  /// The next record that is not blank; false at the end.
  bool next(Record& record);

 private:
  bool next_line(Record& record);
  bool next_element(Record& record);
  void skip_blanks();

  std::string_view remaining_text_;  // what is not cut into records yet
  int64_t line_ = 1;                 // the line on which remaining_text_ begins
  bool is_array_ = false;            // the text is one JSON array
  bool at_first_element_ = true;     // no element has been read
  bool array_ended_ = false;         // by its "]" or by an error
};

/// Whether a text is one JSON array.  False for a list on the first line with more text after it: that is a
/// file of JSON lines with an invalid record.
bool is_json_array(std::string_view text);

}  // namespace clover::data
