#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace clover::data {

/// Cuts a text into records: its lines, or where it is one JSON array, on one line or on many, the elements
/// of that.  Nothing is parsed; an element ends where brackets and texts say so.
class RecordTexts {
 public:
  explicit RecordTexts(std::string_view text);

  struct Record {
    std::string_view text;
    int64_t line = 0;   // that it begins on, from 1
    std::string error;  // what is wrong with the array here; "": nothing
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

/// Whether a text is one JSON array rather than lines of objects, the first of which may be a list by
/// mistake.
bool is_json_array(std::string_view text);

}  // namespace clover::data
