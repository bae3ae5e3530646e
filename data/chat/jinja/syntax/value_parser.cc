#include <algorithm>
#include <cstdlib>
#include <utility>

#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/syntax/expression_parser.h"

// Literals and names, and what may follow a value: attributes, subscripts, calls, filters, tests.
namespace clover::data::jinja {
namespace {

using TokenKind = Token::Kind;

Value integer_literal(const Token& token) {
  const std::string& text = token.text;
  const char prefix = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 32) : ' ';
  const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
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
  const Token token = current();
  if (token.kind == TokenKind::name) {
    ++position_;
    if (token.text == "true" || token.text == "True") return {.line = token.line, .value = Value::of(true)};
    if (token.text == "false" || token.text == "False")
      return {.line = token.line, .value = Value::of(false)};
    if (is_constant(token.text)) return {.line = token.line, .value = Value::none()};
    return name_expression(token.text, token.line);
  }
  if (token.kind == TokenKind::string) {
    std::string text;
    while (current().kind == TokenKind::string) text += tokens_[position_++].text;
    return {.line = token.line, .value = Value::of(std::move(text))};
  }
  if (token.kind == TokenKind::integer || token.kind == TokenKind::real) {
    ++position_;
    return {.line = token.line,
            .value = token.kind == TokenKind::integer ? integer_literal(token)
                                                      : Value::of(std::strtod(token.text.c_str(), nullptr))};
  }
  if (skip_symbol("(")) {
    if (skip_symbol(")")) return new_expression(Expression::Kind::tuple, "", {});
    Expression value = tuple();
    expect_symbol(")");
    return value;
  }
  if (skip_symbol("[")) return list();
  if (skip_symbol("{")) return dict();
  fail("expected a value, found " + describe(token));
}

Expression ExpressionParser::list() {
  Expression list = new_expression(Expression::Kind::list, "", {});
  comma_list_until("]", [&] { list.parts.push_back(expression()); });
  return with_checked_depth(std::move(list));
}

Expression ExpressionParser::dict() {
  Expression dict = new_expression(Expression::Kind::dict, "", {});
  comma_list_until("}", [&] {
    dict.parts.push_back(expression());
    expect_symbol(":");
    dict.parts.push_back(expression());
  });
  return with_checked_depth(std::move(dict));
}

Expression ExpressionParser::postfix(Expression value) {
  for (int count = 0;; ++count) {
    if (count > max_depth) fail("expected fewer parts of one value");
    if (skip_symbol(".")) {
      std::vector<Expression> parts;
      parts.push_back(std::move(value));
      const bool index = current().kind == TokenKind::integer;  // list.0
      if (index) parts.push_back(primary());
      value =
          with_checked_depth(index ? new_expression(Expression::Kind::item, "", std::move(parts))
                                   : new_expression(Expression::Kind::attribute, name(), std::move(parts)));
    } else if (skip_symbol("[")) {
      value = with_checked_depth(subscript(std::move(value)));
    } else if (is_symbol("(")) {
      value = call_of(std::move(value));
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::call_of(Expression value) {
  if (value.kind == Expression::Kind::name && value.text == "lipsum")
    note_unsupported("a text by chance, lipsum(),", value.line);
  Expression call = new_expression(Expression::Kind::call, "", {});
  call.parts.push_back(std::move(value));
  arguments(call);
  return with_checked_depth(std::move(call));
}

Expression ExpressionParser::subscript(Expression value) {
  Expression subscript = new_expression(Expression::Kind::item, "", {});
  subscript.parts.push_back(std::move(value));
  for (bool first = true;; first = false) {
    const bool absent = is_symbol(":") || is_symbol("]");
    if (first && is_symbol("]")) fail("expected an index, found \"]\"");
    subscript.parts.push_back(absent ? Expression{.value = Value::none()} : expression());
    if (!skip_symbol(":")) break;
    subscript.kind = Expression::Kind::slice;
    if (subscript.parts.size() > 3) fail("expected at most three parts of a slice");
  }
  if (is_symbol(",")) fail("several indices of one value are not supported");
  expect_symbol("]");
  while (subscript.kind == Expression::Kind::slice && subscript.parts.size() < 4)
    subscript.parts.push_back({.value = Value::none()});
  return subscript;
}

void ExpressionParser::arguments(Expression& call) {
  expect_symbol("(");
  int stage = 0;  // 0: positional, 1: keyword, 2: *, 3: **
  comma_list_until(")", [&] {
    const bool is_named =
        current().kind == TokenKind::name && peek().kind == TokenKind::symbol && peek().text == "=";
    const char* stars = is_symbol("*") ? "*" : is_symbol("**") ? "**" : nullptr;
    const int next = stars != nullptr ? (stars[1] == '*' ? 3 : 2) : is_named ? 1 : 0;
    const bool in_order = next == 1 ? stage < 3 : next == 0 ? stage == 0 : stage < next;
    if (!in_order) fail("arguments stand in an order that Jinja does not know");
    stage = std::max(stage, next);
    if (stars != nullptr) {
      ++position_;
      return void(call.keywords.emplace_back(stars, expression()));
    }
    if (!is_named) return call.parts.push_back(expression());
    const std::string key = name();
    expect_symbol("=");
    for (const auto& [name, value] : call.keywords)
      if (name == key) fail("\"" + key + "\" is given two values");
    call.keywords.emplace_back(key, expression());
  });
}

std::string ExpressionParser::dotted_name() {
  std::string text = name();
  while (skip_symbol(".")) text += "." + name();
  return text;
}

Expression ExpressionParser::filter_of(Expression value) {
  const int line = current().line;
  std::vector<Expression> parts;
  parts.push_back(std::move(value));
  Expression filter = new_expression(Expression::Kind::filter, dotted_name(), std::move(parts));
  if (!has_filter(filter.text) || is_unsupported_filter(filter.text))
    note_unsupported("the filter \"" + filter.text + "\"", line);
  if (is_symbol("(")) arguments(filter);
  return with_checked_depth(std::move(filter));
}

Expression ExpressionParser::filtered(Expression value) {
  for (int count = 0;; ++count) {
    if (count > max_depth) fail("expected fewer filters of one value");
    if (skip_symbol("|")) {
      value = filter_of(std::move(value));
    } else if (skip_word("is")) {
      value = with_checked_depth(test(std::move(value)));
    } else if (is_symbol("(")) {
      value = call_of(std::move(value));
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::test(Expression value) {
  const bool negated = skip_word("not");
  const int line = current().line;
  std::vector<Expression> parts;
  parts.push_back(std::move(value));
  Expression test = new_expression(Expression::Kind::test, dotted_name(), std::move(parts));
  if (!has_test(test.text)) note_unsupported("the test \"" + test.text + "\"", line);
  const bool has_operand =
      current().kind == TokenKind::string || current().kind == TokenKind::integer ||
      current().kind == TokenKind::real || is_symbol("[") || is_symbol("{") ||
      (current().kind == TokenKind::name && !is_word("else") && !is_word("or") && !is_word("and"));
  if (is_symbol("(")) {
    arguments(test);
  } else if (has_operand) {
    if (is_word("is")) fail("expected no second test of one value");
    test.parts.push_back(postfix(primary()));
  }
  if (!negated) return test;
  std::vector<Expression> parts_of_not;
  parts_of_not.push_back(with_checked_depth(std::move(test)));
  return new_expression(Expression::Kind::operation, "not", std::move(parts_of_not));
}

}  // namespace clover::data::jinja
