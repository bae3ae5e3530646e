#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/error.h"
#include "data/jinja/syntax.h"
#include "data/jinja/texts.h"

// Values of a template, and what Python does with them.  InputError where Python would refuse.
namespace clover::data::jinja {

/// Shared with what it is a part of: looking into a conversation copies none of it.
using Value = std::shared_ptr<const json>;

/// What a template asks for and we lack.
class Unsupported : public InputError {
 public:
  using InputError::InputError;
};
[[noreturn]] inline void lack(const std::string& what) {
  throw Unsupported(what + " is not supported");
}

[[noreturn]] inline void refuse(const std::string& what) {
  throw InputError(what);
}

/// Counts what the rendering that goes on in this thread does: statements, expressions, items, kilobytes.
/// InputError once it is beyond what any conversation needs.
void spend(int64_t amount);
/// A new rendering begins.
void begin_spending();

Value made(json value);
/// Bytes, about: what may not grow beyond `most_of_a_value`.  InputError where values lie too deep within
/// each other.
size_t weight_of(const json& value, int depth = 0);
/// A list or a dict that is neither too large nor too deep.
Value made_of_parts(json value);

const Value& undefined();
inline bool is_undefined(const Value& value) {
  return value->is_discarded();
}

/// Of json.dumps(ensure_ascii=False).
struct JsonStyle {
  int64_t indent = -1;  // a line each; -1: all on one line
  bool ascii = false;   // other characters are escaped
  std::string between_items = ", ", after_key = ": ";
};
std::string dumped(const json& value, const JsonStyle& style);

std::string type_of(const json& value);  // as Python names it
bool is_true(const json& value);
std::string text_of(const json& value);  // str()
bool equal(const json& one, const json& other);
/// One of == != < <= > >= in "not in".
bool compare(const std::string& by, const json& one, const json& other);
/// One of + - * / // % **.
Value calculate(const std::string& by, const json& one, const json& other);

int64_t length_of(const json& value);
/// The items of a list, the keys of a dict, the characters of a text.
std::vector<Value> items_of(const Value& value);
Value list_of(const std::vector<Value>& items);
/// value[key], undefined where there is none.
Value item_of(const Value& value, const json& key);
/// value[begin : end : step], null where nothing is said.
Value slice_of(const Value& value, const json& begin, const json& end, const json& step);

}  // namespace clover::data::jinja
