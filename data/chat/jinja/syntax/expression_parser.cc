#include "data/chat/jinja/syntax/expression_parser.h"

#include <algorithm>
#include <utility>

namespace clover::data::jinja {
namespace {

using Kind = Token::Kind;

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
  if (!unsupported_.empty()) throw InputError(unsupported_.front().sentence);
}

void ExpressionParser::note_unsupported(const std::string& what, int line) {
  unsupported_.push_back({"line " + std::to_string(line) + ": " + what + " is not supported"});
}

void ExpressionParser::drop_conditional_unsupported(size_t since) {
  const auto kept = std::remove_if(unsupported_.begin() + static_cast<ptrdiff_t>(since), unsupported_.end(),
                                   [](const UnsupportedUse& one) { return !one.always; });
  unsupported_.erase(kept, unsupported_.end());
}

void ExpressionParser::keep_unsupported(size_t since) {
  for (size_t i = since; i < unsupported_.size(); ++i) unsupported_[i].always = true;
}

Expression ExpressionParser::new_expression(Expression::Kind kind, const std::string& text,
                                            std::vector<Expression> parts) const {
  return {.kind = kind, .line = now().line, .text = text, .parts = std::move(parts)};
}

Expression ExpressionParser::operation(const std::string& text, Expression one, Expression other) const {
  std::vector<Expression> parts;
  parts.push_back(std::move(one));
  parts.push_back(std::move(other));
  return with_checked_depth(new_expression(Expression::Kind::operation, text, std::move(parts)));
}

Expression ExpressionParser::with_checked_depth(Expression whole) const {
  for (const Expression& part : whole.parts) whole.depth = std::max(whole.depth, part.depth + 1);
  for (const auto& [name, part] : whole.named) whole.depth = std::max(whole.depth, part.depth + 1);
  if (whole.depth > max_expression_depth) fail("expected less within each other");
  return whole;
}

Expression ExpressionParser::tuple(bool with_choice) {
  return comma_separated([&] { return with_choice ? expression() : or_expression(); });
}

template <class One>
Expression ExpressionParser::comma_separated(const One& one) {
  Expression first = one();
  if (!is_symbol(",")) return first;
  Expression all = new_expression(Expression::Kind::tuple, "", {});
  all.parts.push_back(std::move(first));
  while (skip_symbol(",") && now().kind != Kind::end_block && now().kind != Kind::end_output &&
         !is_symbol(")") && !is_symbol("="))
    all.parts.push_back(one());
  return with_checked_depth(std::move(all));
}

Expression ExpressionParser::target(bool with_parts) {
  return comma_separated([&]() -> Expression {
    const Level level(*this);
    if (skip_symbol("(")) {
      Expression inner = target(with_parts);
      expect_symbol(")");
      return inner;
    }
    const int line = now().line;
    const std::string text = name();
    if (is_constant(text)) fail("a value cannot be given to \"" + text + "\"");
    Expression one{.kind = Expression::Kind::name, .line = line, .symbol = symbol_of(text), .text = text};
    if (!with_parts || !skip_symbol(".")) return one;
    std::vector<Expression> parts;
    parts.push_back(std::move(one));
    return new_expression(Expression::Kind::attribute, name(), std::move(parts));
  });
}

Expression ExpressionParser::expression() {
  const Level level(*this);
  const size_t unknown = unsupported_.size();
  Expression value = or_expression();
  while (skip_word("if")) {
    Expression choice = new_expression(Expression::Kind::operation, "if", {});
    choice.parts.push_back(std::move(value));
    choice.parts.push_back(or_expression());
    choice.parts.push_back(skip_word("else") ? expression() : undefined());
    value = with_checked_depth(std::move(choice));
    drop_conditional_unsupported(unknown);
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
  Expression all = new_expression(Expression::Kind::compare, "", {});
  all.parts.push_back(sum());
  for (std::string by = comparison_operator(); !by.empty(); by = comparison_operator()) {
    all.operators.push_back(by);
    all.parts.push_back(sum());
  }
  if (!all.operators.empty()) return with_checked_depth(std::move(all));
  Expression only = std::move(all.parts[0]);
  return only;
}

std::string ExpressionParser::comparison_operator() {
  for (const char* symbol : {"==", "!=", "<=", ">=", "<", ">"})
    if (skip_symbol(symbol)) return symbol;
  if (skip_word("in")) return "in";
  if (!is_word("not") || following().kind != Kind::name || following().text != "in") return "";
  at_ += 2;
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
  Expression all = new_expression(Expression::Kind::joined, "", {});
  all.parts.push_back(product());
  while (skip_symbol("~")) all.parts.push_back(product());
  if (all.parts.size() > 1) return with_checked_depth(std::move(all));
  Expression only = std::move(all.parts[0]);
  return only;
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
    const bool minus = tokens_[at_++].text == "-";
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
