#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/renderer.h"
#include "data/chat/jinja/values/printing.h"

// What the expressions of a template are worth.
namespace clover::data::jinja {

Value Renderer::value_of(const Expression& expression) {
  spend(1);
  if (++depth_ > deepest_run) refuse("macros or values lie too deep within each other");
  const auto with_line = [&](const InputError& error) {
    const std::string what = error.what();
    return what.starts_with("line ") ? what : "line " + std::to_string(expression.line) + ": " + what;
  };
  try {
    Value value = evaluated(expression);
    --depth_;
    return value;
  } catch (const Raised&) {
    throw;
  } catch (const Unsupported& error) {
    throw Unsupported(with_line(error));
  } catch (const InputError& error) {
    throw InputError(with_line(error));
  }
}

Value Renderer::evaluated(const Expression& expression) {
  switch (expression.kind) {
    case Expression::Kind::literal:
      return expression.value;
    case Expression::Kind::name:
      return named(expression);
    case Expression::Kind::list:
      return Value::list(values_of(expression.parts, 0));
    case Expression::Kind::tuple:
      return Value::tuple(values_of(expression.parts, 0));
    case Expression::Kind::dict:
      return dict_of(expression);
    case Expression::Kind::attribute:
      return attribute(expression);
    case Expression::Kind::item: {
      const Value value = value_of(expression.parts[0]);
      return item_of(value, value_of(expression.parts[1]));
    }
    case Expression::Kind::slice: {
      const std::vector<Value> parts = values_of(expression.parts, 0);
      return slice_of(parts[0], parts[1], parts[2], parts[3]);
    }
    case Expression::Kind::call:
      return called(expression);
    case Expression::Kind::filter: {
      const Value value = value_of(expression.parts[0]);
      return apply_filter(expression.text, value, arguments_of(expression));
    }
    case Expression::Kind::test: {
      const Value value = value_of(expression.parts[0]);
      return Value::of(apply_test(expression.text, value, arguments_of(expression)));
    }
    case Expression::Kind::operation:
      return operated(expression);
    case Expression::Kind::joined:
      return joined(expression);
    case Expression::Kind::compare:
      return compared(expression);
  }
  return {};
}

Value Renderer::named(const Expression& expression) {
  if (const Value* found = scope_->find(expression.symbol)) return *found;
  Value& function = functions_[static_cast<size_t>(expression.symbol)];
  if (function.is_undefined() && is_function(expression.text))
    function = Value::of(std::make_shared<Function>(expression.text));
  return function;
}

std::vector<Value> Renderer::values_of(const std::vector<Expression>& expressions, size_t first) {
  std::vector<Value> values;
  for (size_t i = first; i < expressions.size(); ++i) values.push_back(value_of(expressions[i]));
  return values;
}

Arguments Renderer::arguments_of(const Expression& expression) {
  Arguments arguments{values_of(expression.parts, 1), {}};
  for (const auto& [name, part] : expression.named) {
    Value value = value_of(part);
    name[0] == '*' ? spread(name, value, arguments)
                   : void(arguments.named.emplace_back(name, std::move(value)));
  }
  return arguments;
}

void Renderer::spread(const std::string& how, const Value& value, Arguments& arguments) {
  if (how == "*") {
    if (value.is_undefined() || !has_items(value)) refuse(type_of(value) + " is spread as values");
    for (Value& item : items_of(value)) arguments.values.push_back(std::move(item));
    return;
  }
  if (!value.is_dict()) refuse(type_of(value) + " is spread as named values");
  for (const auto& [key, item] : value.dict().items) {
    for (const auto& [own, given] : arguments.named)
      if (key.is_text() && own == key.text()) refuse("\"" + own + "\" is given two values");
    arguments.named.emplace_back(text_in(key), item);
  }
}

Value Renderer::dict_of(const Expression& expression) {
  Dict dict;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    const Value key = value_of(expression.parts[i]);
    dict.set(key, value_of(expression.parts[i + 1]));
  }
  return Value::of(std::move(dict));
}

Value Renderer::attribute(const Expression& expression) {
  const Expression& whole = expression.parts[0];
  const Value value = value_of(whole);
  if (value.is_undefined())
    refuse("\"" + expression.text + "\" of something undefined" +
           (whole.kind == Expression::Kind::name ? " (" + whole.text + ")" : ""));
  return attribute_of(value, expression.text);
}

Value Renderer::operated(const Expression& expression) {
  const std::string& by = expression.text;
  const auto part = [&](size_t i) { return value_of(expression.parts[i]); };
  if (by == "if") return is_true(part(1)) ? part(0) : part(2);
  if (by == "not") return Value::of(!is_true(part(0)));
  const Value one = part(0);
  if (by == "and") return is_true(one) ? part(1) : one;
  if (by == "or") return is_true(one) ? one : part(1);
  if (by == "minus") return negated(one);
  if (by != "plus") return calculate(by, one, part(1));
  if (!one.is_number()) refuse("+ " + type_of(one));
  return one.kind() == Value::Kind::boolean ? Value::of(one.whole()) : one;
}

Value Renderer::joined(const Expression& expression) {
  std::string all;
  for (const Expression& part : expression.parts) {
    all += printed(value_of(part));
    check_size(all);
  }
  return Value::of(std::move(all));
}

Value Renderer::compared(const Expression& expression) {
  Value left = value_of(expression.parts[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = value_of(expression.parts[i + 1]);
    if (!compare(expression.operators[i], left, right)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

Value Renderer::called(const Expression& expression, const Value* caller) {
  const Expression& what = expression.parts[0];
  if (what.kind == Expression::Kind::attribute) {
    const Value value = value_of(what.parts[0]);
    if (value.is_undefined()) refuse("." + what.text + "() of something undefined");
    Arguments arguments;
    if (value.kind() != Value::Kind::object && has_method(value, what.text)) {
      arguments = arguments_of(expression);
      if (caller != nullptr) refuse(what.text + "() takes no caller");
      return call_method(value, what.text, arguments);
    }
    const Value method = attribute_of(value, what.text);
    const auto loop = value.as<Loop>();
    arguments = arguments_of(expression);
    if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
    if (loop && (what.text == "cycle" || what.text == "changed")) return loop->call(what.text, arguments);
    if (method.is_undefined())
      refuse("." + what.text + "() of " + type_of(value) + ", which has no such method");
    return called(method, arguments);
  }
  const Value value = value_of(what);
  if (value.is_undefined())
    refuse(what.kind == Expression::Kind::name ? "\"" + what.text + "\" is called, which is undefined"
                                               : "something undefined is called");
  Arguments arguments = arguments_of(expression);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return called(value, arguments);
}

}  // namespace clover::data::jinja
