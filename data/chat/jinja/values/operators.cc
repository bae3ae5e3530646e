#include "data/chat/jinja/values/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/chat/jinja/values/formatting.h"
#include "data/chat/jinja/values/printing.h"
#include "data/chat/jinja/values/texts.h"

namespace clover::data::jinja {
namespace {

using Kind = Value::Kind;

Value text_or_markup(std::string text, bool markup) {
  return markup ? Value::markup(std::move(text)) : Value::of(std::move(text));
}

Value repeat(const Value& value, Integer count) {
  count = std::max<Integer>(count, 0);
  const auto size =
      static_cast<Integer>(value.is_text() ? value.text().size() : value.items().size() * sizeof(Value));
  if (size > 0 && count > static_cast<Integer>(max_text_bytes) / size)
    throw_error("a value grows beyond 64 MiB");
  if (size == 0) count = 0;
  if (value.is_text()) {
    std::string result;
    result.reserve(static_cast<size_t>(count * size));
    for (Integer i = 0; i < count; ++i) result += value.text();
    return text_or_markup(std::move(result), value.is_markup());
  }
  std::vector<Value> result;
  for (Integer i = 0; i < count; ++i) result.insert(result.end(), value.items().begin(), value.items().end());
  return value.kind() == Kind::list ? Value::list(std::move(result)) : Value::tuple(std::move(result));
}

[[noreturn]] void throw_overflow() {
  throw_error("a whole number grows beyond 38 digits");
}

Integer floor_divide(Integer left, Integer right) {
  if (right == 0) throw_error("division by zero");
  if (right == -1) {
    Integer result = 0;
    if (__builtin_sub_overflow(Integer{0}, left, &result)) throw_overflow();
    return result;
  }
  const Integer remainder = left % right;
  return left / right - (remainder != 0 && (remainder < 0) != (right < 0));
}

Value power(Integer base, Integer exponent) {
  if (exponent < 0) {
    if (base == 0) throw_error("zero to a negative power");
    return Value::of(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value::of(exponent == 0 ? Integer{1} : base);
  if (base == -1) return Value::of(Integer{exponent % 2 == 0 ? 1 : -1});
  Integer result = 1;
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(result, base, &result)) throw_overflow();
  return Value::of(result);
}

Value integer_operation(const std::string& op, Integer left, Integer right) {
  Integer result = 0;
  bool overflows = false;
  if (op == "+") {
    overflows = __builtin_add_overflow(left, right, &result);
  } else if (op == "-") {
    overflows = __builtin_sub_overflow(left, right, &result);
  } else if (op == "*") {
    overflows = __builtin_mul_overflow(left, right, &result);
  } else if (op == "**") {
    return power(left, right);
  } else {
    const Integer floor = floor_divide(left, right);
    result = op == "//" ? floor : right == -1 ? 0 : left - floor * right;
  }
  if (overflows) throw_overflow();
  return Value::of(result);
}

Value float_operation(const std::string& op, double left, double right) {
  if (op == "**") {
    if (left == 0 && right < 0) throw_error("zero to a negative power");
    const double power = std::pow(left, right);
    if (std::isnan(power) && !std::isnan(left) && !std::isnan(right)) throw_unsupported("a complex number");
    if (std::isinf(power) && std::isfinite(left) && std::isfinite(right))
      throw_error("a number grows beyond all others");
    return Value::of(power);
  }
  if (op == "+") return Value::of(left + right);
  if (op == "-") return Value::of(left - right);
  if (op == "*") return Value::of(left * right);
  if (right == 0) throw_error("division by zero");
  if (op == "/") return Value::of(left / right);
  double remainder = std::fmod(left, right);
  double quotient = (left - remainder) / right;
  if (remainder != 0 && (remainder < 0) != (right < 0)) {
    remainder += right;
    quotient -= 1;
  } else if (remainder == 0) {
    remainder = std::copysign(0.0, right);
  }
  if (op == "%") return Value::of(remainder);
  const double floor = std::floor(quotient);
  if (quotient == 0) return Value::of(std::copysign(0.0, left / right));
  return Value::of(quotient - floor > 0.5 ? floor + 1 : floor);
}

/// Compares two numbers: -1, 0 or 1; 2 when one of them is NaN.
int order_of(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral())
    return (left.integer() > right.integer()) - (left.integer() < right.integer());
  const auto to_long_double = [](const Value& value) {
    return value.is_integral() ? static_cast<long double>(value.integer())
                               : static_cast<long double>(value.real());
  };
  const long double a = to_long_double(left), b = to_long_double(right);
  return std::isnan(a) || std::isnan(b) ? 2 : (a > b) - (a < b);
}

bool equal_items(const std::vector<Value>& left, const std::vector<Value>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), equal);
}

bool contains(const Value& container, const Value& member) {
  if (container.is_text()) {
    if (!member.is_text()) throw_error(type_of(member) + " is looked for in a text");
    return find_linear(container.text(), member.text()) != std::string::npos;
  }
  if (container.is_dict()) return container.dict().find(member) != nullptr;
  if (!has_items(container)) throw_error(type_of(member) + " is looked for in " + type_of(container));
  Items items(container);
  while (const std::optional<Value> item = items.next())
    if (item->is_same_object(member) && item->kind() > Kind::real ? true : equal(*item, member)) return true;
  return false;
}

}  // namespace

std::string type_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "something undefined";
    case Kind::none:
      return "none";
    case Kind::boolean:
      return "true or false";
    case Kind::integer:
    case Kind::real:
      return "a number";
    case Kind::text:
      return "a text";
    case Kind::list:
      return "a list";
    case Kind::tuple:
      return "a tuple";
    case Kind::dict:
      return "a dict";
    case Kind::object:
      return "a " + value.object()->type();
  }
  return "";
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer() != 0;
    case Kind::real:
      return value.real() != 0;
    case Kind::text:
      return !value.text().empty();
    case Kind::list:
    case Kind::tuple:
      return !value.items().empty();
    case Kind::dict:
      return !value.dict().items.empty();
    case Kind::object:
      break;
  }
  if (const auto view = value.as<View>()) return !view->items.empty();
  if (const auto range = value.as<Range>()) return range->count > 0;
  return true;
}

bool equal(const Value& left, const Value& right) {
  charge_template_work(1);
  if (left.is_number() && right.is_number()) return order_of(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::text:
      charge_template_work(static_cast<int64_t>(left.text().size() >> 8));
      return left.text() == right.text();
    case Kind::list:
    case Kind::tuple:
      return equal_items(left.items(), right.items());
    case Kind::dict: {
      if (left.dict().items.size() != right.dict().items.size()) return false;
      for (const auto& [key, value] : left.dict().items) {
        const Value* found = right.dict().find(key);
        if (found == nullptr || !equal(value, *found)) return false;
      }
      return true;
    }
    case Kind::object:
      break;
    default:
      return true;  // undefined or none
  }
  if (left.object() == right.object()) return true;
  const auto a = left.as<Range>(), b = right.as<Range>();
  if (a && b)
    return a->count == b->count &&
           (a->count == 0 || (a->begin == b->begin && (a->count == 1 || a->step == b->step)));
  const auto left_view = left.as<View>(), right_view = right.as<View>();
  if (!left_view || !right_view || left_view->name == "dict_values" || right_view->name == "dict_values")
    return false;
  return left_view->items.size() == right_view->items.size() &&
         std::all_of(left_view->items.begin(), left_view->items.end(), [&](const Value& key) {
           return std::any_of(right_view->items.begin(), right_view->items.end(),
                              [&](const Value& other_key) { return equal(key, other_key); });
         });
}

bool less(const Value& left, const Value& right) {
  charge_template_work(1);
  if (left.is_number() && right.is_number()) return order_of(left, right) == -1;
  if (left.is_text() && right.is_text()) return left.text() < right.text();
  if (!left.is_sequence() || left.kind() != right.kind())
    throw_error(type_of(left) + " is compared with " + type_of(right));
  const std::vector<Value>&a = left.items(), &b = right.items();
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (!equal(a[i], b[i])) return less(a[i], b[i]);
  return a.size() < b.size();
}

bool compare(const std::string& op, const Value& left, const Value& right) {
  if (op == "==") return equal(left, right);
  if (op == "!=") return !equal(left, right);
  if (op == "in") return contains(right, left);
  if (op == "not in") return !contains(right, left);
  if (op == "<") return less(left, right);
  if (op == ">") return less(right, left);
  if (left.is_number() && right.is_number()) {
    const int order = order_of(left, right);
    return order == 0 || order == (op == "<=" ? -1 : 1);
  }
  return op == "<=" ? !less(right, left) : !less(left, right);
}

Value calculate(const std::string& op, const Value& left, const Value& right) {
  if (op == "%" && left.is_text()) return percent_format(left, right);
  if (op == "+" && left.is_text() && right.is_text()) {
    const bool markup = left.is_markup() || right.is_markup();
    check_size(left.text().size() + right.text().size());
    return text_or_markup(markup ? escaped(left) + escaped(right) : left.text() + right.text(), markup);
  }
  if (op == "+" && left.is_sequence() && left.kind() == right.kind()) {
    std::vector<Value> result = left.items();
    result.insert(result.end(), right.items().begin(), right.items().end());
    return left.kind() == Kind::list ? Value::list(std::move(result)) : Value::tuple(std::move(result));
  }
  const auto can_repeat = [](const Value& value) { return value.is_text() || value.is_sequence(); };
  if (op == "*" && can_repeat(left) && right.is_integral()) return repeat(left, right.integer());
  if (op == "*" && can_repeat(right) && left.is_integral()) return repeat(right, left.integer());
  if (!left.is_number() || !right.is_number()) {
    if (op == "-" && left.as<View>() && right.as<View>()) throw_unsupported("a set");
    throw_error(type_of(left) + " " + op + " " + type_of(right));
  }
  if (left.is_integral() && right.is_integral() && op != "/")
    return integer_operation(op, left.integer(), right.integer());
  return float_operation(op, left.real(), right.real());
}

Value negated(const Value& value) {
  if (value.kind() == Kind::real) return Value::of(-value.real());
  if (!value.is_integral()) throw_error("- " + type_of(value));
  return integer_operation("-", 0, value.integer());
}

void check_hashable(const Value& value) {
  const auto view = value.as<View>();
  if (value.kind() == Kind::list || value.is_dict() || (view && view->name != "dict_values"))
    throw_error(type_of(value) + " as a key");
  if (value.kind() == Kind::tuple)
    for (const Value& item : value.items()) check_hashable(item);
}

std::string escaped(const Value& value) {
  if (value.is_markup()) return value.text();
  std::string result;
  for (const char c : to_str(value)) {
    const std::string_view special = "&<>'\"";
    static constexpr const char* entities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const size_t at = special.find(c);
    at == std::string_view::npos ? void(result += c) : void(result += entities[at]);
  }
  check_size(result);
  return result;
}

int64_t index_of(const Value& value) {
  if (!value.is_integral()) throw_error("expected a whole number, found " + type_of(value));
  constexpr Integer max_index = std::numeric_limits<int64_t>::max() / 4;
  return static_cast<int64_t>(std::clamp(value.integer(), -max_index, max_index));
}

}  // namespace clover::data::jinja
