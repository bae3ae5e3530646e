#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/renderer.h"
#include "data/chat/jinja/values/printing.h"

// Evaluation of expressions.
namespace clover::data::jinja {

Value Renderer::evaluate(const Expression& expression) {
  charge_work(1);
  if (++depth_ > max_run_depth) throw_error("macros or values lie too deep within each other");
  const auto with_line = [&](const InputError& error) {
    const std::string what = error.what();
    return what.starts_with("line ") ? what : "line " + std::to_string(expression.line) + ": " + what;
  };
  try {
    Value value = evaluate_by_kind(expression);
    --depth_;
    return value;
  } catch (const TemplateRaised&) {
    throw;
  } catch (const Unsupported& error) {
    throw Unsupported(with_line(error));
  } catch (const InputError& error) {
    throw InputError(with_line(error));
  }
}

Value Renderer::evaluate_by_kind(const Expression& expression) {
  switch (expression.kind) {
    case Expression::Kind::literal:
      return expression.value;
    case Expression::Kind::name:
      return evaluate_name(expression);
    case Expression::Kind::list:
      return Value::list(evaluate_all(expression.parts, 0));
    case Expression::Kind::tuple:
      return Value::tuple(evaluate_all(expression.parts, 0));
    case Expression::Kind::dict:
      return evaluate_dict(expression);
    case Expression::Kind::attribute:
      return evaluate_attribute(expression);
    case Expression::Kind::item: {
      const Value value = evaluate(expression.parts[0]);
      return item_of(value, evaluate(expression.parts[1]));
    }
    case Expression::Kind::slice: {
      const std::vector<Value> parts = evaluate_all(expression.parts, 0);
      return slice_of(parts[0], parts[1], parts[2], parts[3]);
    }
    case Expression::Kind::call:
      return evaluate_call(expression);
    case Expression::Kind::filter: {
      const Value value = evaluate(expression.parts[0]);
      return apply_filter(expression.text, value, evaluate_arguments(expression));
    }
    case Expression::Kind::test: {
      const Value value = evaluate(expression.parts[0]);
      return Value::of(apply_test(expression.text, value, evaluate_arguments(expression)));
    }
    case Expression::Kind::operation:
      return evaluate_operation(expression);
    case Expression::Kind::joined:
      return evaluate_concat(expression);
    case Expression::Kind::compare:
      return evaluate_comparison(expression);
  }
  return {};
}

Value Renderer::evaluate_name(const Expression& expression) {
  if (const Value* found = scope_->find(expression.symbol)) return *found;
  Value& function = functions_[static_cast<size_t>(expression.symbol)];
  if (function.is_undefined() && is_function(expression.text))
    function = Value::of(std::make_shared<Function>(expression.text));
  return function;
}

std::vector<Value> Renderer::evaluate_all(const std::vector<Expression>& expressions, size_t first) {
  std::vector<Value> values;
  for (size_t i = first; i < expressions.size(); ++i) values.push_back(evaluate(expressions[i]));
  return values;
}

Arguments Renderer::evaluate_arguments(const Expression& expression) {
  Arguments arguments{evaluate_all(expression.parts, 1), {}};
  for (const auto& [name, part] : expression.named) {
    Value value = evaluate(part);
    name[0] == '*' ? unpack(name, value, arguments)
                   : void(arguments.named.emplace_back(name, std::move(value)));
  }
  return arguments;
}

void Renderer::unpack(const std::string& how, const Value& value, Arguments& arguments) {
  if (how == "*") {
    if (value.is_undefined() || !has_items(value)) throw_error(type_of(value) + " is spread as values");
    for (Value& item : items_of(value)) arguments.values.push_back(std::move(item));
    return;
  }
  if (!value.is_dict()) throw_error(type_of(value) + " is spread as named values");
  for (const auto& [key, item] : value.dict().items) {
    for (const auto& [own, given] : arguments.named)
      if (key.is_text() && own == key.text()) throw_error("\"" + own + "\" is given two values");
    arguments.named.emplace_back(text_in(key), item);
  }
}

Value Renderer::evaluate_dict(const Expression& expression) {
  Dict dict;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    const Value key = evaluate(expression.parts[i]);
    dict.set(key, evaluate(expression.parts[i + 1]));
  }
  return Value::of(std::move(dict));
}

Value Renderer::evaluate_attribute(const Expression& expression) {
  const Expression& whole = expression.parts[0];
  const Value value = evaluate(whole);
  if (value.is_undefined())
    throw_error("\"" + expression.text + "\" of something undefined" +
                (whole.kind == Expression::Kind::name ? " (" + whole.text + ")" : ""));
  return attribute_of(value, expression.text);
}

Value Renderer::evaluate_operation(const Expression& expression) {
  const std::string& by = expression.text;
  const auto part = [&](size_t i) { return evaluate(expression.parts[i]); };
  if (by == "if") return is_true(part(1)) ? part(0) : part(2);
  if (by == "not") return Value::of(!is_true(part(0)));
  const Value one = part(0);
  if (by == "and") return is_true(one) ? part(1) : one;
  if (by == "or") return is_true(one) ? one : part(1);
  if (by == "minus") return negated(one);
  if (by != "plus") return calculate(by, one, part(1));
  if (!one.is_number()) throw_error("+ " + type_of(one));
  return one.kind() == Value::Kind::boolean ? Value::of(one.integer()) : one;
}

Value Renderer::evaluate_concat(const Expression& expression) {
  std::string all;
  for (const Expression& part : expression.parts) {
    all += to_str(evaluate(part));
    check_size(all);
  }
  return Value::of(std::move(all));
}

Value Renderer::evaluate_comparison(const Expression& expression) {
  Value left = evaluate(expression.parts[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(expression.parts[i + 1]);
    if (!compare(expression.operators[i], left, right)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

Value Renderer::evaluate_call(const Expression& expression, const Value* caller) {
  const Expression& what = expression.parts[0];
  if (what.kind == Expression::Kind::attribute) {
    const Value value = evaluate(what.parts[0]);
    if (value.is_undefined()) throw_error("." + what.text + "() of something undefined");
    Arguments arguments;
    if (value.kind() != Value::Kind::object && has_method(value, what.text)) {
      arguments = evaluate_arguments(expression);
      if (caller != nullptr) throw_error(what.text + "() takes no caller");
      return call_method(value, what.text, arguments);
    }
    const Value method = attribute_of(value, what.text);
    const auto loop = value.as<Loop>();
    arguments = evaluate_arguments(expression);
    if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
    if (loop && (what.text == "cycle" || what.text == "changed")) return loop->call(what.text, arguments);
    if (method.is_undefined())
      throw_error("." + what.text + "() of " + type_of(value) + ", which has no such method");
    return evaluate_call(method, arguments);
  }
  const Value value = evaluate(what);
  if (value.is_undefined())
    throw_error(what.kind == Expression::Kind::name ? "\"" + what.text + "\" is called, which is undefined"
                                                    : "something undefined is called");
  Arguments arguments = evaluate_arguments(expression);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return evaluate_call(value, arguments);
}

}  // namespace clover::data::jinja
