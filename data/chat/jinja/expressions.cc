#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/renderer.h"
#include "data/chat/jinja/values/printing.h"

// Evaluation of expressions.
namespace clover::data::jinja {

Value Renderer::evaluate(const Expression& expression) {
  charge_template_work(1);
  if (++depth_ > max_run_depth) throw_error("macros or values lie too deep within each other");
  const auto with_line = [&](const InputError& error) {
    const std::string message = error.what();
    return message.starts_with("line ") ? message
                                        : "line " + std::to_string(expression.line) + ": " + message;
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
    case Expression::Kind::concatenation:
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
  for (const auto& [name, part] : expression.keywords) {
    Value value = evaluate(part);
    name[0] == '*' ? unpack(name, value, arguments)
                   : void(arguments.keywords.emplace_back(name, std::move(value)));
  }
  return arguments;
}

void Renderer::unpack(const std::string& stars, const Value& value, Arguments& arguments) {
  if (stars == "*") {
    if (value.is_undefined() || !has_items(value)) throw_error(type_of(value) + " is spread as values");
    for (Value& item : items_of(value)) arguments.values.push_back(std::move(item));
    return;
  }
  if (!value.is_dict()) throw_error(type_of(value) + " is spread as named values");
  for (const auto& [key, item] : value.dict().items) {
    for (const auto& [name, given] : arguments.keywords)
      if (key.is_text() && name == key.text()) throw_error("\"" + name + "\" is given two values");
    arguments.keywords.emplace_back(text_in(key), item);
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
  const Expression& object = expression.parts[0];
  const Value value = evaluate(object);
  if (value.is_undefined())
    throw_error("\"" + expression.text + "\" of something undefined" +
                (object.kind == Expression::Kind::name ? " (" + object.text + ")" : ""));
  return attribute_of(value, expression.text);
}

Value Renderer::evaluate_operation(const Expression& expression) {
  const std::string& op = expression.text;
  const auto part = [&](size_t i) { return evaluate(expression.parts[i]); };
  if (op == "if") return is_true(part(1)) ? part(0) : part(2);
  if (op == "not") return Value::of(!is_true(part(0)));
  const Value left = part(0);
  if (op == "and") return is_true(left) ? part(1) : left;
  if (op == "or") return is_true(left) ? left : part(1);
  if (op == "minus") return negated(left);
  if (op != "plus") return calculate(op, left, part(1));
  if (!left.is_number()) throw_error("+ " + type_of(left));
  return left.kind() == Value::Kind::boolean ? Value::of(left.integer()) : left;
}

Value Renderer::evaluate_concat(const Expression& expression) {
  std::string text;
  for (const Expression& part : expression.parts) {
    text += to_str(evaluate(part));
    check_size(text);
  }
  return Value::of(std::move(text));
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
  const Expression& callee = expression.parts[0];
  if (callee.kind == Expression::Kind::attribute) {
    const Value value = evaluate(callee.parts[0]);
    if (value.is_undefined()) throw_error("." + callee.text + "() of something undefined");
    Arguments arguments;
    if (value.kind() != Value::Kind::object && has_method(value, callee.text)) {
      arguments = evaluate_arguments(expression);
      if (caller != nullptr) throw_error(callee.text + "() takes no caller");
      return call_method(value, callee.text, arguments);
    }
    const Value method = attribute_of(value, callee.text);
    const auto loop = value.as<Loop>();
    arguments = evaluate_arguments(expression);
    if (caller != nullptr) arguments.keywords.emplace_back("caller", *caller);
    if (loop && (callee.text == "cycle" || callee.text == "changed"))
      return loop->call(callee.text, arguments);
    if (method.is_undefined())
      throw_error("." + callee.text + "() of " + type_of(value) + ", which has no such method");
    return evaluate_call(method, arguments);
  }
  const Value value = evaluate(callee);
  if (value.is_undefined())
    throw_error(callee.kind == Expression::Kind::name
                    ? "\"" + callee.text + "\" is called, which is undefined"
                    : "something undefined is called");
  Arguments arguments = evaluate_arguments(expression);
  if (caller != nullptr) arguments.keywords.emplace_back("caller", *caller);
  return evaluate_call(value, arguments);
}

}  // namespace clover::data::jinja
