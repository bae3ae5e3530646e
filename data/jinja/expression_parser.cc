#include "data/jinja/expression_parser.h"

#include <cstdlib>
#include <utility>

namespace clover::data::jinja {
namespace {

using Kind = Token::Kind;

constexpr int longest = 500;         // operators side by side
constexpr int deepest_within = 500;  // expressions within each other, operators side by side among them

}  // namespace

Expression ExpressionParser::undefined() {
  return {.value = json(json::value_t::discarded)};
}

Expression ExpressionParser::made(Expression::Kind kind, const std::string& text,
                                  std::vector<Expression> parts) const {
  return {.kind = kind, .line = now().line, .text = text, .parts = std::move(parts)};
}

Expression ExpressionParser::operation(const std::string& text, Expression one, Expression other) const {
  std::vector<Expression> parts;
  parts.push_back(std::move(one));
  parts.push_back(std::move(other));
  return measured(made(Expression::Kind::operation, text, std::move(parts)));
}

Expression ExpressionParser::measured(Expression whole) const {
  for (const Expression& part : whole.parts) whole.depth = std::max(whole.depth, part.depth + 1);
  for (const auto& [name, part] : whole.named) whole.depth = std::max(whole.depth, part.depth + 1);
  if (whole.depth > deepest_within) fail("expected less within each other");
  return whole;
}

Expression ExpressionParser::tuple() {
  Expression first = expression();
  if (!is_symbol(",")) return first;
  Expression all = made(Expression::Kind::list, "", {});
  all.parts.push_back(std::move(first));
  while (skip_symbol(",") && now().kind != Kind::end_block && now().kind != Kind::end_output &&
         !is_symbol(")"))
    all.parts.push_back(expression());
  return measured(std::move(all));
}

Expression ExpressionParser::expression() {
  const Level level(*this);
  Expression value = either();
  while (skip_word("if")) {
    Expression choice = made(Expression::Kind::operation, "if", {});
    choice.parts.push_back(std::move(value));
    choice.parts.push_back(either());
    choice.parts.push_back(skip_word("else") ? expression() : undefined());
    value = measured(std::move(choice));
  }
  return value;
}

Expression ExpressionParser::either() {
  return from_left([this] { return skip_word("or") ? "or" : nullptr; }, [this] { return both(); });
}

Expression ExpressionParser::both() {
  return from_left([this] { return skip_word("and") ? "and" : nullptr; }, [this] { return negation(); });
}

Expression ExpressionParser::negation() {
  const Level level(*this);
  if (!skip_word("not")) return comparison();
  std::vector<Expression> parts;
  parts.push_back(negation());
  return measured(made(Expression::Kind::operation, "not", std::move(parts)));
}

Expression ExpressionParser::comparison() {
  Expression all = made(Expression::Kind::compare, "", {});
  all.parts.push_back(sum());
  for (std::string by = comparing(); !by.empty(); by = comparing()) {
    all.operators.push_back(by);
    all.parts.push_back(sum());
  }
  if (!all.operators.empty()) return measured(std::move(all));
  Expression only = std::move(all.parts[0]);
  return only;
}

std::string ExpressionParser::comparing() {
  for (const char* symbol : {"==", "!=", "<=", ">=", "<", ">"})
    if (skip_symbol(symbol)) return symbol;
  if (skip_word("in")) return "in";
  if (!is_word("not") || following().kind != Kind::name || following().text != "in") return "";
  at_ += 2;
  return "not in";
}

template <class Skip, class Next>
Expression ExpressionParser::from_left(const Skip& skip, const Next& next) {
  Expression value = next();
  for (int count = 0;; ++count) {
    if (count > longest) fail("expected fewer operators side by side");
    const char* found = skip();
    if (found == nullptr) return value;
    value = operation(found, std::move(value), next());
  }
}

const char* ExpressionParser::skip_one(std::initializer_list<const char*> symbols) {
  for (const char* symbol : symbols)
    if (skip_symbol(symbol)) return symbol;
  return nullptr;
}

Expression ExpressionParser::sum() {
  return from_left([this] { return skip_one({"+", "-"}); }, [this] { return joined(); });
}

Expression ExpressionParser::joined() {
  return from_left([this] { return skip_one({"~"}); }, [this] { return product(); });
}

Expression ExpressionParser::product() {
  return from_left([this] { return skip_one({"*", "//", "/", "%"}); }, [this] { return power(); });
}

Expression ExpressionParser::power() {
  return from_left([this] { return skip_one({"**"}); }, [this] { return signed_value(true); });
}

Expression ExpressionParser::signed_value(bool with_filters) {
  const Level level(*this);
  if (is_symbol("-") || is_symbol("+")) {
    const std::string sign = tokens_[at_++].text;
    Expression value = operation(sign, {.value = 0}, signed_value(false));
    return with_filters ? filtered(std::move(value)) : std::move(value);
  }
  Expression value = parts_of(primary());
  return with_filters ? filtered(std::move(value)) : std::move(value);
}

Expression ExpressionParser::primary() {
  const Token& token = now();
  if (token.kind == Kind::name) {
    ++at_;
    return constant(token);
  }
  if (token.kind == Kind::string) {
    Expression value{.line = token.line, .value = ""};
    std::string all;
    while (now().kind == Kind::string) all += tokens_[at_++].text;
    value.value = all;
    return value;
  }
  if (token.kind == Kind::number) {
    ++at_;
    const bool whole = token.text.find_first_of(".eE") == std::string::npos;
    return {.line = token.line,
            .value = whole ? json(std::stoll(token.text)) : json(std::strtod(token.text.c_str(), nullptr))};
  }
  if (skip_symbol("(")) {
    if (skip_symbol(")")) return made(Expression::Kind::list, "", {});
    Expression value = tuple();
    expect_symbol(")");
    return value;
  }
  if (skip_symbol("[")) return list();
  if (skip_symbol("{")) return dict();
  fail("expected a value, found " + described(token));
}

Expression ExpressionParser::constant(const Token& token) {
  const std::string& text = token.text;
  if (text == "true" || text == "True") return {.line = token.line, .value = true};
  if (text == "false" || text == "False") return {.line = token.line, .value = false};
  if (text == "none" || text == "None") return {.line = token.line, .value = nullptr};
  return {.kind = Expression::Kind::name, .line = token.line, .text = text};
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
      const bool index = now().kind == Kind::number;  // list.0
      if (index) parts.push_back(primary());
      value = measured(index ? made(Expression::Kind::item, "", std::move(parts))
                             : made(Expression::Kind::attribute, name(), std::move(parts)));
    } else if (skip_symbol("[")) {
      value = measured(subscript(std::move(value)));
    } else if (is_symbol("(")) {
      Expression call = made(Expression::Kind::call, "", {});
      call.parts.push_back(std::move(value));
      arguments(call);
      value = measured(std::move(call));
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::subscript(Expression value) {
  Expression part = made(Expression::Kind::item, "", {});
  part.parts.push_back(std::move(value));
  for (bool first = true;; first = false) {
    const bool absent = is_symbol(":") || is_symbol("]");
    if (first && is_symbol("]")) fail("expected an index, found \"]\"");
    part.parts.push_back(absent ? Expression{.value = nullptr} : expression());
    if (!skip_symbol(":")) break;
    part.kind = Expression::Kind::slice;
    if (part.parts.size() > 3) fail("expected at most three parts of a slice");
  }
  expect_symbol("]");
  while (part.kind == Expression::Kind::slice && part.parts.size() < 4)
    part.parts.push_back({.value = nullptr});
  return part;
}

void ExpressionParser::arguments(Expression& call) {
  expect_symbol("(");
  until(")", [&] {
    const bool named =
        now().kind == Kind::name && following().kind == Kind::symbol && following().text == "=";
    if (!named) return call.parts.push_back(expression());
    const std::string key = name();
    expect_symbol("=");
    call.named.emplace_back(key, expression());
  });
}

Expression ExpressionParser::filtered(Expression value) {
  for (int count = 0;; ++count) {
    if (count > deepest) fail("expected fewer filters of one value");
    if (skip_symbol("|")) {
      std::vector<Expression> parts;
      parts.push_back(std::move(value));
      value = made(Expression::Kind::filter, name(), std::move(parts));
      if (is_symbol("(")) arguments(value);
      value = measured(std::move(value));
    } else if (skip_word("is")) {
      value = measured(test(std::move(value)));
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::test(Expression value) {
  const bool negated = skip_word("not");
  std::vector<Expression> parts;
  parts.push_back(std::move(value));
  Expression test = made(Expression::Kind::test, name(), std::move(parts));
  const bool operand = now().kind == Kind::string || now().kind == Kind::number || is_symbol("[") ||
                       (now().kind == Kind::name && !is_word("else") && !is_word("or") && !is_word("and") &&
                        !is_word("is") && !is_word("if") && !is_word("not") && !is_word("in"));
  if (is_symbol("(")) {
    arguments(test);
  } else if (operand) {
    test.parts.push_back(parts_of(primary()));
  }
  if (!negated) return test;
  std::vector<Expression> all;
  all.push_back(std::move(test));
  return made(Expression::Kind::operation, "not", std::move(all));
}

}  // namespace clover::data::jinja
