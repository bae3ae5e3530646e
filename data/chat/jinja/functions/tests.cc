#include <map>

#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/functions/global_functions.h"
#include "data/chat/jinja/values/printing.h"
#include "data/chat/jinja/values/texts.h"

// The tests: value is name(..).
namespace clover::data::jinja {
namespace {

using Kind = Value::Kind;

/// Python's "is"; Unsupported where it depends on how CPython shares objects.
bool is_same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  const Kind kind = a.kind();
  if (kind == Kind::none) return true;
  if (kind == Kind::boolean) return a.integer() == b.integer();
  if (a.is_same_object(b) && kind != Kind::undefined && !a.is_number()) return true;
  if (kind == Kind::list || kind == Kind::dict || kind == Kind::object) return false;
  if (kind == Kind::integer && a.integer() != b.integer()) return false;
  if (kind == Kind::integer && a.integer() >= -5 && a.integer() <= 256)
    return true;  // CPython shares small integers
  if (kind != Kind::undefined && !equal(a, b)) return false;
  throw_unsupported("the test sameas of " + type_of(a));
}

bool is_remainder(const Value& value, const Value& divisor, Integer remainder) {
  return equal(calculate("%", value, divisor), Value::of(remainder));
}

bool is_callable(const Value& value) {
  if (value.is_undefined()) return true;
  if (value.kind() != Kind::object) return false;
  const std::string type = value.object()->type();
  return type == "builtin_function_or_method" || type == "function" || type == "Macro" || type == "Joiner" ||
         type == "LoopContext";
}

using Test = bool (*)(const Value& value, const BoundArguments& bound);
/// A test: its parameters in the notation of BoundArguments, and its function.
struct TestEntry {
  const char* parameters;
  Test function;
};

bool is_name_in(const Value& value, bool (*has_name)(const std::string&)) {
  check_hashable(value);
  return value.is_text() && has_name(value.text());
}

template <char Operator, bool OrEqual = false>
bool compare_with(const Value& value, const BoundArguments& bound) {
  const std::string op = std::string(1, Operator) + (OrEqual ? "=" : "");
  return compare(op, value, bound.at(0));
}

const std::map<std::string, TestEntry>& tests() {
  static const std::map<std::string, TestEntry> entries{
      {"odd",
       {"", [](const Value& v, const BoundArguments&) { return is_remainder(v, Value::of(Integer{2}), 1); }}},
      {"even",
       {"", [](const Value& v, const BoundArguments&) { return is_remainder(v, Value::of(Integer{2}), 0); }}},
      {"divisibleby",
       {"num", [](const Value& v, const BoundArguments& b) { return is_remainder(v, b.at(0), 0); }}},
      {"defined", {"", [](const Value& v, const BoundArguments&) { return !v.is_undefined(); }}},
      {"undefined", {"", [](const Value& v, const BoundArguments&) { return v.is_undefined(); }}},
      {"filter", {"", [](const Value& v, const BoundArguments&) { return is_name_in(v, has_filter); }}},
      {"test", {"", [](const Value& v, const BoundArguments&) { return is_name_in(v, has_test); }}},
      {"none", {"", [](const Value& v, const BoundArguments&) { return v.is_none(); }}},
      {"boolean", {"", [](const Value& v, const BoundArguments&) { return v.kind() == Kind::boolean; }}},
      {"false",
       {"", [](const Value& v, const BoundArguments&) { return v.kind() == Kind::boolean && !is_true(v); }}},
      {"true",
       {"", [](const Value& v, const BoundArguments&) { return v.kind() == Kind::boolean && is_true(v); }}},
      {"integer", {"", [](const Value& v, const BoundArguments&) { return v.kind() == Kind::integer; }}},
      {"float", {"", [](const Value& v, const BoundArguments&) { return v.kind() == Kind::real; }}},
      {"lower", {"", [](const Value& v, const BoundArguments&) { return is_of_kind("islower", to_str(v)); }}},
      {"upper", {"", [](const Value& v, const BoundArguments&) { return is_of_kind("isupper", to_str(v)); }}},
      {"string", {"", [](const Value& v, const BoundArguments&) { return v.is_text(); }}},
      {"mapping", {"", [](const Value& v, const BoundArguments&) { return v.is_dict(); }}},
      {"number", {"", [](const Value& v, const BoundArguments&) { return v.is_number(); }}},
      {"sequence",
       {"",
        [](const Value& v, const BoundArguments&) {
          return v.is_undefined() || v.is_text() || v.is_sequence() || v.is_dict() || v.as<Range>();
        }}},
      {"sameas", {"other", [](const Value& v, const BoundArguments& b) { return is_same(v, b.at(0)); }}},
      {"iterable",
       {"",
        [](const Value& v, const BoundArguments&) {
          return has_items(v) || (v.kind() == Kind::object && v.object()->type() == "LoopContext");
        }}},
      {"callable", {"", [](const Value& v, const BoundArguments&) { return is_callable(v); }}},
      {"escaped", {"", [](const Value& v, const BoundArguments&) { return v.is_markup(); }}},
      {"in", {"seq", [](const Value& v, const BoundArguments& b) { return compare("in", v, b.at(0)); }}},
  };
  return entries;
}

const std::map<std::string, Test>& comparisons() {
  static const std::map<std::string, Test> entries{{"==", compare_with<'=', true>},
                                                   {"eq", compare_with<'=', true>},
                                                   {"equalto", compare_with<'=', true>},
                                                   {"!=", compare_with<'!', true>},
                                                   {"ne", compare_with<'!', true>},
                                                   {">", compare_with<'>'>},
                                                   {"gt", compare_with<'>'>},
                                                   {"greaterthan", compare_with<'>'>},
                                                   {">=", compare_with<'>', true>},
                                                   {"ge", compare_with<'>', true>},
                                                   {"<", compare_with<'<'>},
                                                   {"lt", compare_with<'<'>},
                                                   {"lessthan", compare_with<'<'>},
                                                   {"<=", compare_with<'<', true>},
                                                   {"le", compare_with<'<', true>}};
  return entries;
}

}  // namespace

bool has_test(const std::string& name) {
  return tests().contains(name) || comparisons().contains(name);
}

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  const std::string what = "the test \"" + name + "\"";
  if (const auto found = comparisons().find(name); found != comparisons().end())
    return found->second(value, BoundArguments("/ other", what, arguments));
  const auto found = tests().find(name);
  if (found == tests().end()) throw_unsupported(what);
  return found->second.function(value, BoundArguments(found->second.parameters, what, arguments));
}

}  // namespace clover::data::jinja
