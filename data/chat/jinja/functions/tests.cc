#include <map>

#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/functions/objects.h"
#include "data/chat/jinja/values/printing.h"
#include "data/chat/jinja/values/texts.h"

// The tests: value is name(..).
namespace clover::data::jinja {
namespace {

using Kind = Value::Kind;

bool is_same(const Value& one, const Value& other) {
  if (one.kind() != other.kind()) return false;
  const Kind kind = one.kind();
  if (kind == Kind::none) return true;
  if (kind == Kind::boolean) return one.integer() == other.integer();
  if (one.shares(other) && kind != Kind::undefined && !one.is_number()) return true;
  if (kind == Kind::list || kind == Kind::dict || kind == Kind::object) return false;
  if (kind == Kind::integer && one.integer() != other.integer()) return false;
  if (kind == Kind::integer && one.integer() >= -5 && one.integer() <= 256)
    return true;  // CPython shares small integers
  if (kind != Kind::undefined && !equal(one, other)) return false;
  throw_unsupported("the test sameas of " + type_of(one));
}

bool is_remainder(const Value& value, const Value& by, Integer wanted) {
  return equal(calculate("%", value, by), Value::of(wanted));
}

bool is_callable(const Value& value) {
  if (value.is_undefined()) return true;
  if (value.kind() != Kind::object) return false;
  const std::string type = value.object()->type();
  return type == "builtin_function_or_method" || type == "function" || type == "Macro" || type == "Joiner" ||
         type == "LoopContext";
}

using Test = bool (*)(const Value& value, const BoundArguments& bound);
struct Asked {
  const char* parameters;
  Test holds;
};

bool names(const Value& value, bool (*known)(const std::string&)) {
  check_hashable(value);
  return value.is_text() && known(value.text());
}

template <char By, bool OrEqual = false>
bool compared(const Value& value, const BoundArguments& bound) {
  const std::string by = std::string(1, By) + (OrEqual ? "=" : "");
  return compare(by, value, bound.at(0));
}

const std::map<std::string, Asked>& tests() {
  static const std::map<std::string, Asked> all{
      {"odd",
       {"", [](const Value& v, const BoundArguments&) { return is_remainder(v, Value::of(Integer{2}), 1); }}},
      {"even",
       {"", [](const Value& v, const BoundArguments&) { return is_remainder(v, Value::of(Integer{2}), 0); }}},
      {"divisibleby",
       {"num", [](const Value& v, const BoundArguments& b) { return is_remainder(v, b.at(0), 0); }}},
      {"defined", {"", [](const Value& v, const BoundArguments&) { return !v.is_undefined(); }}},
      {"undefined", {"", [](const Value& v, const BoundArguments&) { return v.is_undefined(); }}},
      {"filter", {"", [](const Value& v, const BoundArguments&) { return names(v, has_filter); }}},
      {"test", {"", [](const Value& v, const BoundArguments&) { return names(v, has_test); }}},
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
  return all;
}

const std::map<std::string, Test>& comparisons() {
  static const std::map<std::string, Test> all{
      {"==", compared<'=', true>}, {"eq", compared<'=', true>},    {"equalto", compared<'=', true>},
      {"!=", compared<'!', true>}, {"ne", compared<'!', true>},    {">", compared<'>'>},
      {"gt", compared<'>'>},       {"greaterthan", compared<'>'>}, {">=", compared<'>', true>},
      {"ge", compared<'>', true>}, {"<", compared<'<'>},           {"lt", compared<'<'>},
      {"lessthan", compared<'<'>}, {"<=", compared<'<', true>},    {"le", compared<'<', true>}};
  return all;
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
  return found->second.holds(value, BoundArguments(found->second.parameters, what, arguments));
}

}  // namespace clover::data::jinja
