#include <algorithm>
#include <cstdlib>
#include <utility>

#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/syntax/expression_parser.h"

// Single values of expressions, and what follows one: parts, calls, filters, tests.
namespace clover::data::jinja {
namespace {

using Kind = Token::Kind;

Value whole_number(const Token& token) {
  const std::string& text = token.text;
  const char mark = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 32) : ' ';
  const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
  Integer value = 0;
  for (size_t i = base == 10 ? 0 : 2; i < text.size(); ++i) {
    const int digit = text[i] <= '9' ? text[i] - '0' : (text[i] | 32) - 'a' + 10;
    if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value))
      throw InputError("line " + std::to_string(token.line) +
                       ": a whole number of more than 38 digits is not supported");
  }
  return Value::of(value);
}

}  // namespace

bool ExpressionParser::is_constant(const std::string& name) {
  for (const char* constant : {"true", "True", "false", "False", "none", "None"})
    if (name == constant) return true;
  return false;
}

Expression ExpressionParser::primary() {
  const Token token = now();
  if (token.kind == Kind::name) {
    ++at_;
    if (token.text == "true" || token.text == "True") return {.line = token.line, .value = Value::of(true)};
    if (token.text == "false" || token.text == "False")
      return {.line = token.line, .value = Value::of(false)};
    if (is_constant(token.text)) return {.line = token.line, .value = Value::none()};
    return named(token.text, token.line);
  }
  if (token.kind == Kind::string) {
    std::string all;
    while (now().kind == Kind::string) all += tokens_[at_++].text;
    return {.line = token.line, .value = Value::of(std::move(all))};
  }
  if (token.kind == Kind::whole || token.kind == Kind::real) {
    ++at_;
    return {.line = token.line,
            .value = token.kind == Kind::whole ? whole_number(token)
                                               : Value::of(std::strtod(token.text.c_str(), nullptr))};
  }
  if (skip_symbol("(")) {
    if (skip_symbol(")")) return made(Expression::Kind::tuple, "", {});
    Expression value = tuple();
    expect_symbol(")");
    return value;
  }
  if (skip_symbol("[")) return list();
  if (skip_symbol("{")) return dict();
  fail("expected a value, found " + described(token));
}

Expression ExpressionParser::list() {
  Expression all = made(Expression::Kind::list, "", {});
  until("]", [&] { all.parts.push_back(expression()); });
  return measured(std::move(all));
}

Expression ExpressionParser::dict() {
  Expression all = made(Expression::Kind::dict, "", {});
  until("}", [&] {
    all.parts.push_back(expression());
    expect_symbol(":");
    all.parts.push_back(expression());
  });
  return measured(std::move(all));
}

Expression ExpressionParser::parts_of(Expression value) {
  for (int count = 0;; ++count) {
    if (count > deepest) fail("expected fewer parts of one value");
    if (skip_symbol(".")) {
      std::vector<Expression> parts;
      parts.push_back(std::move(value));
      const bool index = now().kind == Kind::whole;  // list.0
      if (index) parts.push_back(primary());
      value = measured(index ? made(Expression::Kind::item, "", std::move(parts))
                             : made(Expression::Kind::attribute, name(), std::move(parts)));
    } else if (skip_symbol("[")) {
      value = measured(subscript(std::move(value)));
    } else if (is_symbol("(")) {
      value = call_of(std::move(value));
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::call_of(Expression value) {
  if (value.kind == Expression::Kind::name && value.text == "lipsum")
    miss("a text by chance, lipsum(),", value.line);
  Expression call = made(Expression::Kind::call, "", {});
  call.parts.push_back(std::move(value));
  arguments(call);
  return measured(std::move(call));
}

Expression ExpressionParser::subscript(Expression value) {
  Expression part = made(Expression::Kind::item, "", {});
  part.parts.push_back(std::move(value));
  for (bool first = true;; first = false) {
    const bool absent = is_symbol(":") || is_symbol("]");
    if (first && is_symbol("]")) fail("expected an index, found \"]\"");
    part.parts.push_back(absent ? Expression{.value = Value::none()} : expression());
    if (!skip_symbol(":")) break;
    part.kind = Expression::Kind::slice;
    if (part.parts.size() > 3) fail("expected at most three parts of a slice");
  }
  if (is_symbol(",")) fail("several indices of one value are not supported");
  expect_symbol("]");
  while (part.kind == Expression::Kind::slice && part.parts.size() < 4)
    part.parts.push_back({.value = Value::none()});
  return part;
}

void ExpressionParser::arguments(Expression& call) {
  expect_symbol("(");
  int stage = 0;  // of values, names, what is spread
  until(")", [&] {
    const bool is_named =
        now().kind == Kind::name && following().kind == Kind::symbol && following().text == "=";
    const char* spread = is_symbol("*") ? "*" : is_symbol("**") ? "**" : nullptr;
    const int next = spread != nullptr ? (spread[1] == '*' ? 3 : 2) : is_named ? 1 : 0;
    const bool in_order = next == 1 ? stage < 3 : next == 0 ? stage == 0 : stage < next;
    if (!in_order) fail("arguments stand in an order that Jinja does not know");
    stage = std::max(stage, next);
    if (spread != nullptr) {
      ++at_;
      return void(call.named.emplace_back(spread, expression()));
    }
    if (!is_named) return call.parts.push_back(expression());
    const std::string key = name();
    expect_symbol("=");
    for (const auto& [own, value] : call.named)
      if (own == key) fail("\"" + key + "\" is given two values");
    call.named.emplace_back(key, expression());
  });
}

std::string ExpressionParser::dotted_name() {
  std::string all = name();
  while (skip_symbol(".")) all += "." + name();
  return all;
}

Expression ExpressionParser::filter_of(Expression value) {
  const int line = now().line;
  std::vector<Expression> parts;
  parts.push_back(std::move(value));
  Expression filter = made(Expression::Kind::filter, dotted_name(), std::move(parts));
  if (!has_filter(filter.text) || is_unwritten_filter(filter.text))
    miss("the filter \"" + filter.text + "\"", line);
  if (is_symbol("(")) arguments(filter);
  return measured(std::move(filter));
}

Expression ExpressionParser::filtered(Expression value) {
  for (int count = 0;; ++count) {
    if (count > deepest) fail("expected fewer filters of one value");
    if (skip_symbol("|")) {
      value = filter_of(std::move(value));
    } else if (skip_word("is")) {
      value = measured(test(std::move(value)));
    } else if (is_symbol("(")) {
      value = call_of(std::move(value));
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::test(Expression value) {
  const bool negated = skip_word("not");
  const int line = now().line;
  std::vector<Expression> parts;
  parts.push_back(std::move(value));
  Expression test = made(Expression::Kind::test, dotted_name(), std::move(parts));
  if (!has_test(test.text)) miss("the test \"" + test.text + "\"", line);
  const bool operand = now().kind == Kind::string || now().kind == Kind::whole || now().kind == Kind::real ||
                       is_symbol("[") || is_symbol("{") ||
                       (now().kind == Kind::name && !is_word("else") && !is_word("or") && !is_word("and"));
  if (is_symbol("(")) {
    arguments(test);
  } else if (operand) {
    if (is_word("is")) fail("expected no second test of one value");
    test.parts.push_back(parts_of(primary()));
  }
  if (!negated) return test;
  std::vector<Expression> all;
  all.push_back(measured(std::move(test)));
  return made(Expression::Kind::operation, "not", std::move(all));
}

}  // namespace clover::data::jinja
