#include "data/chat/jinja/syntax/expression_parser.h"

#include <algorithm>
#include <utility>

namespace clover::data::jinja {
namespace {

using Kind = Token::Kind;

constexpr int longest = 500;         // operators side by side
constexpr int deepest_within = 500;  // expressions within each other, operators side by side among them

}  // namespace

Expression ExpressionParser::undefined() {
  return {};
}

int ExpressionParser::symbol_of(const std::string& name) {
  const auto [found, added] = symbols_.emplace(name, static_cast<int>(names_.size()));
  if (added) names_.push_back(name);
  return found->second;
}

Expression ExpressionParser::named(const std::string& name, int line) {
  const int symbol = symbol_of(name);
  for (Parameters* macro : macros_) {
    macro->wants_caller |= symbol == caller_symbol;
    macro->wants_rest |= symbol == rest_symbol;
    macro->wants_named |= symbol == named_symbol;
  }
  return {.kind = Expression::Kind::name, .line = line, .symbol = symbol, .text = name};
}

void ExpressionParser::check_known() const {
  if (!unknown_.empty()) throw InputError(unknown_.front().sentence);
}

void ExpressionParser::miss(const std::string& what, int line) {
  unknown_.push_back({"line " + std::to_string(line) + ": " + what + " is not supported"});
}

void ExpressionParser::forget_unknown(size_t since) {
  const auto kept = std::remove_if(unknown_.begin() + static_cast<ptrdiff_t>(since), unknown_.end(),
                                   [](const Unknown& one) { return !one.always; });
  unknown_.erase(kept, unknown_.end());
}

void ExpressionParser::keep_unknown(size_t since) {
  for (size_t i = since; i < unknown_.size(); ++i) unknown_[i].always = true;
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

Expression ExpressionParser::tuple(bool with_choice) {
  return several([&] { return with_choice ? expression() : either(); });
}

template <class One>
Expression ExpressionParser::several(const One& one) {
  Expression first = one();
  if (!is_symbol(",")) return first;
  Expression all = made(Expression::Kind::tuple, "", {});
  all.parts.push_back(std::move(first));
  while (skip_symbol(",") && now().kind != Kind::end_block && now().kind != Kind::end_output &&
         !is_symbol(")") && !is_symbol("="))
    all.parts.push_back(one());
  return measured(std::move(all));
}

Expression ExpressionParser::target(bool with_parts) {
  return several([&]() -> Expression {
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
    return made(Expression::Kind::attribute, name(), std::move(parts));
  });
}

Expression ExpressionParser::expression() {
  const Level level(*this);
  const size_t unknown = unknown_.size();
  Expression value = either();
  while (skip_word("if")) {
    Expression choice = made(Expression::Kind::operation, "if", {});
    choice.parts.push_back(std::move(value));
    choice.parts.push_back(either());
    choice.parts.push_back(skip_word("else") ? expression() : undefined());
    value = measured(std::move(choice));
    forget_unknown(unknown);
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
  Expression all = made(Expression::Kind::joined, "", {});
  all.parts.push_back(product());
  while (skip_symbol("~")) all.parts.push_back(product());
  if (all.parts.size() > 1) return measured(std::move(all));
  Expression only = std::move(all.parts[0]);
  return only;
}

Expression ExpressionParser::product() {
  return from_left([this] { return skip_one({"*", "//", "/", "%"}); }, [this] { return power(); });
}

Expression ExpressionParser::power() {
  return from_left([this] { return skip_one({"**"}); }, [this] { return signed_value(true); });
}

Expression ExpressionParser::signed_value(bool with_filters) {
  const Level level(*this);
  Expression value;
  if (is_symbol("-") || is_symbol("+")) {
    const bool minus = tokens_[at_++].text == "-";
    std::vector<Expression> parts;
    parts.push_back(signed_value(false));
    value = measured(made(Expression::Kind::operation, minus ? "minus" : "plus", std::move(parts)));
  } else {
    value = primary();
  }
  value = parts_of(std::move(value));
  return with_filters ? filtered(std::move(value)) : std::move(value);
}

}  // namespace clover::data::jinja
