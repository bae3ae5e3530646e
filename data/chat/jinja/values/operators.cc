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

Value repeated(const Value& many, Integer count) {
  count = std::max<Integer>(count, 0);
  const auto size =
      static_cast<Integer>(many.is_text() ? many.text().size() : many.items().size() * sizeof(Value));
  if (size > 0 && count > static_cast<Integer>(max_text_bytes) / size)
    throw_error("a value grows beyond 64 MiB");
  if (size == 0) count = 0;
  if (many.is_text()) {
    std::string all;
    all.reserve(static_cast<size_t>(count * size));
    for (Integer i = 0; i < count; ++i) all += many.text();
    return text_or_markup(std::move(all), many.is_markup());
  }
  std::vector<Value> all;
  for (Integer i = 0; i < count; ++i) all.insert(all.end(), many.items().begin(), many.items().end());
  return many.kind() == Kind::list ? Value::list(std::move(all)) : Value::tuple(std::move(all));
}

[[noreturn]] void too_long() {
  throw_error("a whole number grows beyond 38 digits");
}

Integer floor_of(Integer one, Integer other) {
  if (other == 0) throw_error("division by zero");
  if (other == -1) {
    Integer result = 0;
    if (__builtin_sub_overflow(Integer{0}, one, &result)) too_long();
    return result;
  }
  const Integer rest = one % other;
  return one / other - (rest != 0 && (rest < 0) != (other < 0));
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
    if (__builtin_mul_overflow(result, base, &result)) too_long();
  return Value::of(result);
}

Value integer_operation(const std::string& by, Integer one, Integer other) {
  Integer result = 0;
  bool beyond = false;
  if (by == "+") {
    beyond = __builtin_add_overflow(one, other, &result);
  } else if (by == "-") {
    beyond = __builtin_sub_overflow(one, other, &result);
  } else if (by == "*") {
    beyond = __builtin_mul_overflow(one, other, &result);
  } else if (by == "**") {
    return power(one, other);
  } else {
    const Integer floor = floor_of(one, other);
    result = by == "//" ? floor : other == -1 ? 0 : one - floor * other;
  }
  if (beyond) too_long();
  return Value::of(result);
}

Value float_operation(const std::string& by, double one, double other) {
  if (by == "**") {
    if (one == 0 && other < 0) throw_error("zero to a negative power");
    const double power = std::pow(one, other);
    if (std::isnan(power) && !std::isnan(one) && !std::isnan(other)) throw_unsupported("a complex number");
    if (std::isinf(power) && std::isfinite(one) && std::isfinite(other))
      throw_error("a number grows beyond all others");
    return Value::of(power);
  }
  if (by == "+") return Value::of(one + other);
  if (by == "-") return Value::of(one - other);
  if (by == "*") return Value::of(one * other);
  if (other == 0) throw_error("division by zero");
  if (by == "/") return Value::of(one / other);
  double rest = std::fmod(one, other);
  double quotient = (one - rest) / other;
  if (rest != 0 && (rest < 0) != (other < 0)) {
    rest += other;
    quotient -= 1;
  } else if (rest == 0) {
    rest = std::copysign(0.0, other);
  }
  if (by == "%") return Value::of(rest);
  const double floor = std::floor(quotient);
  if (quotient == 0) return Value::of(std::copysign(0.0, one / other));
  return Value::of(quotient - floor > 0.5 ? floor + 1 : floor);
}

/// Compares two numbers: -1, 0 or 1; 2 when one of them is NaN.
int order_of(const Value& one, const Value& other) {
  if (one.is_integral() && other.is_integral())
    return (one.integer() > other.integer()) - (one.integer() < other.integer());
  const auto wide = [](const Value& value) {
    return value.is_integral() ? static_cast<long double>(value.integer())
                               : static_cast<long double>(value.real());
  };
  const long double a = wide(one), b = wide(other);
  return std::isnan(a) || std::isnan(b) ? 2 : (a > b) - (a < b);
}

bool equal_items(const std::vector<Value>& one, const std::vector<Value>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), equal);
}

bool contains(const Value& whole, const Value& part) {
  if (whole.is_text()) {
    if (!part.is_text()) throw_error(type_of(part) + " is looked for in a text");
    return find_linear(whole.text(), part.text()) != std::string::npos;
  }
  if (whole.is_dict()) return whole.dict().find(part) != nullptr;
  if (!has_items(whole)) throw_error(type_of(part) + " is looked for in " + type_of(whole));
  Items items(whole);
  while (const std::optional<Value> item = items.next())
    if (item->shares(part) && item->kind() > Kind::real ? true : equal(*item, part)) return true;
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

bool equal(const Value& one, const Value& other) {
  charge_work(1);
  if (one.is_number() && other.is_number()) return order_of(one, other) == 0;
  if (one.kind() != other.kind()) return false;
  switch (one.kind()) {
    case Kind::text:
      charge_work(static_cast<int64_t>(one.text().size() >> 8));
      return one.text() == other.text();
    case Kind::list:
    case Kind::tuple:
      return equal_items(one.items(), other.items());
    case Kind::dict: {
      if (one.dict().items.size() != other.dict().items.size()) return false;
      for (const auto& [key, value] : one.dict().items) {
        const Value* found = other.dict().find(key);
        if (found == nullptr || !equal(value, *found)) return false;
      }
      return true;
    }
    case Kind::object:
      break;
    default:
      return true;  // undefined or none
  }
  if (one.object() == other.object()) return true;
  const auto a = one.as<Range>(), b = other.as<Range>();
  if (a && b)
    return a->count == b->count &&
           (a->count == 0 || (a->begin == b->begin && (a->count == 1 || a->step == b->step)));
  const auto keys = one.as<View>(), others = other.as<View>();
  if (!keys || !others || keys->name == "dict_values" || others->name == "dict_values") return false;
  return keys->items.size() == others->items.size() &&
         std::all_of(keys->items.begin(), keys->items.end(), [&](const Value& key) {
           return std::any_of(others->items.begin(), others->items.end(),
                              [&](const Value& also) { return equal(key, also); });
         });
}

bool less(const Value& one, const Value& other) {
  charge_work(1);
  if (one.is_number() && other.is_number()) return order_of(one, other) == -1;
  if (one.is_text() && other.is_text()) return one.text() < other.text();
  if (!one.is_sequence() || one.kind() != other.kind())
    throw_error(type_of(one) + " is compared with " + type_of(other));
  const std::vector<Value>&a = one.items(), &b = other.items();
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (!equal(a[i], b[i])) return less(a[i], b[i]);
  return a.size() < b.size();
}

bool compare(const std::string& by, const Value& one, const Value& other) {
  if (by == "==") return equal(one, other);
  if (by == "!=") return !equal(one, other);
  if (by == "in") return contains(other, one);
  if (by == "not in") return !contains(other, one);
  if (by == "<") return less(one, other);
  if (by == ">") return less(other, one);
  if (one.is_number() && other.is_number()) {
    const int order = order_of(one, other);
    return order == 0 || order == (by == "<=" ? -1 : 1);
  }
  return by == "<=" ? !less(other, one) : !less(one, other);
}

Value calculate(const std::string& by, const Value& one, const Value& other) {
  if (by == "%" && one.is_text()) return percent_format(one, other);
  if (by == "+" && one.is_text() && other.is_text()) {
    const bool markup = one.is_markup() || other.is_markup();
    check_size(one.text().size() + other.text().size());
    return text_or_markup(markup ? escaped(one) + escaped(other) : one.text() + other.text(), markup);
  }
  if (by == "+" && one.is_sequence() && one.kind() == other.kind()) {
    std::vector<Value> all = one.items();
    all.insert(all.end(), other.items().begin(), other.items().end());
    return one.kind() == Kind::list ? Value::list(std::move(all)) : Value::tuple(std::move(all));
  }
  const auto many = [](const Value& value) { return value.is_text() || value.is_sequence(); };
  if (by == "*" && many(one) && other.is_integral()) return repeated(one, other.integer());
  if (by == "*" && many(other) && one.is_integral()) return repeated(other, one.integer());
  if (!one.is_number() || !other.is_number()) {
    if (by == "-" && one.as<View>() && other.as<View>()) throw_unsupported("a set");
    throw_error(type_of(one) + " " + by + " " + type_of(other));
  }
  if (one.is_integral() && other.is_integral() && by != "/")
    return integer_operation(by, one.integer(), other.integer());
  return float_operation(by, one.real(), other.real());
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
  std::string all;
  for (const char c : to_str(value)) {
    const std::string_view from = "&<>'\"";
    static constexpr const char* to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const size_t at = from.find(c);
    at == std::string_view::npos ? void(all += c) : void(all += to[at]);
  }
  check_size(all);
  return all;
}

int64_t index_of(const Value& value) {
  if (!value.is_integral()) throw_error("expected a whole number, found " + type_of(value));
  constexpr Integer most = std::numeric_limits<int64_t>::max() / 4;
  return static_cast<int64_t>(std::clamp(value.integer(), -most, most));
}

}  // namespace clover::data::jinja
