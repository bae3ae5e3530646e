#include "data/chat/jinja/syntax/expression_parser.h"

#include <algorithm>
#include <utility>

namespace clover::data::jinja {
namespace {

using TokenKind = Token::Kind;

constexpr int max_operators = 500;         // in one chain of operators
constexpr int max_expression_depth = 500;  // nesting of expressions; a chain of operators nests, too

}  // namespace

Expression ExpressionParser::undefined() {
  return {};
}

int ExpressionParser::symbol_of(const std::string& name) {
  const auto [found, added] = symbols_.emplace(name, static_cast<int>(names_.size()));
  if (added) names_.push_back(name);
  return found->second;
}

Expression ExpressionParser::name_expression(const std::string& name, int line) {
  const int symbol = symbol_of(name);
  for (Parameters* macro : macros_) {
    macro->uses_caller |= symbol == caller_symbol;
    macro->uses_varargs |= symbol == varargs_symbol;
    macro->uses_kwargs |= symbol == kwargs_symbol;
  }
  return {.kind = Expression::Kind::name, .line = line, .symbol = symbol, .text = name};
}

void ExpressionParser::check_supported() const {
  if (!unsupported_.empty()) throw InputError(unsupported_.front().message);
}

void ExpressionParser::note_unsupported(const std::string& what, int line) {
  unsupported_.push_back({"line " + std::to_string(line) + ": " + what + " is not supported"});
}

void ExpressionParser::drop_conditional_unsupported(size_t since) {
  const auto new_end =
      std::remove_if(unsupported_.begin() + static_cast<ptrdiff_t>(since), unsupported_.end(),
                     [](const UnsupportedUse& use) { return !use.in_scoped_block; });
  unsupported_.erase(new_end, unsupported_.end());
}

void ExpressionParser::keep_unsupported(size_t since) {
  for (size_t i = since; i < unsupported_.size(); ++i) unsupported_[i].in_scoped_block = true;
}

Expression ExpressionParser::new_expression(Expression::Kind kind, const std::string& text,
                                            std::vector<Expression> parts) const {
  return {.kind = kind, .line = current().line, .text = text, .parts = std::move(parts)};
}

Expression ExpressionParser::operation(const std::string& text, Expression left, Expression right) const {
  std::vector<Expression> parts;
  parts.push_back(std::move(left));
  parts.push_back(std::move(right));
  return with_checked_depth(new_expression(Expression::Kind::operation, text, std::move(parts)));
}

Expression ExpressionParser::with_checked_depth(Expression whole) const {
  for (const Expression& part : whole.parts) whole.depth = std::max(whole.depth, part.depth + 1);
  for (const auto& [name, part] : whole.keywords) whole.depth = std::max(whole.depth, part.depth + 1);
  if (whole.depth > max_expression_depth) fail("expected less within each other");
  return whole;
}

Expression ExpressionParser::tuple(bool with_conditional) {
  return comma_separated([&] { return with_conditional ? expression() : or_expression(); });
}

template <class Item>
Expression ExpressionParser::comma_separated(const Item& item) {
  Expression first = item();
  if (!is_symbol(",")) return first;
  Expression tuple = new_expression(Expression::Kind::tuple, "", {});
  tuple.parts.push_back(std::move(first));
  while (skip_symbol(",") && current().kind != TokenKind::end_block &&
         current().kind != TokenKind::end_output && !is_symbol(")") && !is_symbol("="))
    tuple.parts.push_back(item());
  return with_checked_depth(std::move(tuple));
}

Expression ExpressionParser::target(bool with_attributes) {
  return comma_separated([&]() -> Expression {
    const Level level(*this);
    if (skip_symbol("(")) {
      Expression inner = target(with_attributes);
      expect_symbol(")");
      return inner;
    }
    const int line = current().line;
    const std::string text = name();
    if (is_constant(text)) fail("a value cannot be given to \"" + text + "\"");
    Expression name_part{
        .kind = Expression::Kind::name, .line = line, .symbol = symbol_of(text), .text = text};
    if (!with_attributes || !skip_symbol(".")) return name_part;
    std::vector<Expression> parts;
    parts.push_back(std::move(name_part));
    return new_expression(Expression::Kind::attribute, name(), std::move(parts));
  });
}

Expression ExpressionParser::expression() {
  const Level level(*this);
  const size_t unsupported_before = unsupported_.size();
  Expression value = or_expression();
  while (skip_word("if")) {
    Expression conditional = new_expression(Expression::Kind::operation, "if", {});
    conditional.parts.push_back(std::move(value));
    conditional.parts.push_back(or_expression());
    conditional.parts.push_back(skip_word("else") ? expression() : undefined());
    value = with_checked_depth(std::move(conditional));
    drop_conditional_unsupported(unsupported_before);
  }
  return value;
}

Expression ExpressionParser::or_expression() {
  return left_associative([this] { return skip_word("or") ? "or" : nullptr; },
                          [this] { return and_expression(); });
}

Expression ExpressionParser::and_expression() {
  return left_associative([this] { return skip_word("and") ? "and" : nullptr; },
                          [this] { return not_expression(); });
}

Expression ExpressionParser::not_expression() {
  const Level level(*this);
  if (!skip_word("not")) return comparison();
  std::vector<Expression> parts;
  parts.push_back(not_expression());
  return with_checked_depth(new_expression(Expression::Kind::operation, "not", std::move(parts)));
}

Expression ExpressionParser::comparison() {
  Expression comparison = new_expression(Expression::Kind::compare, "", {});
  comparison.parts.push_back(sum());
  for (std::string op = comparison_operator(); !op.empty(); op = comparison_operator()) {
    comparison.operators.push_back(op);
    comparison.parts.push_back(sum());
  }
  if (!comparison.operators.empty()) return with_checked_depth(std::move(comparison));
  Expression operand = std::move(comparison.parts[0]);
  return operand;
}

std::string ExpressionParser::comparison_operator() {
  for (const char* symbol : {"==", "!=", "<=", ">=", "<", ">"})
    if (skip_symbol(symbol)) return symbol;
  if (skip_word("in")) return "in";
  if (!is_word("not") || peek().kind != TokenKind::name || peek().text != "in") return "";
  position_ += 2;
  return "not in";
}

template <class Skip, class Next>
Expression ExpressionParser::left_associative(const Skip& skip, const Next& next) {
  Expression value = next();
  for (int count = 0;; ++count) {
    if (count > max_operators) fail("expected fewer operators side by side");
    const char* found = skip();
    if (found == nullptr) return value;
    value = operation(found, std::move(value), next());
  }
}

const char* ExpressionParser::skip_any(std::initializer_list<const char*> symbols) {
  for (const char* symbol : symbols)
    if (skip_symbol(symbol)) return symbol;
  return nullptr;
}

Expression ExpressionParser::sum() {
  return left_associative([this] { return skip_any({"+", "-"}); }, [this] { return concatenation(); });
}

Expression ExpressionParser::concatenation() {
  Expression concatenation = new_expression(Expression::Kind::concatenation, "", {});
  concatenation.parts.push_back(product());
  while (skip_symbol("~")) concatenation.parts.push_back(product());
  if (concatenation.parts.size() > 1) return with_checked_depth(std::move(concatenation));
  Expression operand = std::move(concatenation.parts[0]);
  return operand;
}

Expression ExpressionParser::product() {
  return left_associative([this] { return skip_any({"*", "//", "/", "%"}); }, [this] { return power(); });
}

Expression ExpressionParser::power() {
  return left_associative([this] { return skip_any({"**"}); }, [this] { return unary(true); });
}

Expression ExpressionParser::unary(bool with_filters) {
  const Level level(*this);
  Expression value;
  if (is_symbol("-") || is_symbol("+")) {
    const bool minus = tokens_[position_++].text == "-";
    std::vector<Expression> parts;
    parts.push_back(unary(false));
    value = with_checked_depth(
        new_expression(Expression::Kind::operation, minus ? "minus" : "plus", std::move(parts)));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filtered(std::move(value)) : std::move(value);
}

}  // namespace clover::data::jinja
