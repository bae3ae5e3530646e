#include <algorithm>
#include <initializer_list>
#include <utility>

#include "data/chat/jinja/syntax/expression_parser.h"
#include "data/chat/jinja/syntax/syntax.h"

namespace clover::data::jinja {
namespace {

using TokenKind = Token::Kind;

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view text) : ExpressionParser(tokenize(text)) {}

  Program parse() {
    std::vector<Statement> statements = body({});
    if (current().kind != TokenKind::end) fail("found " + describe(current()) + " that nothing opened");
    check_supported();
    return {std::move(statements), std::move(names_)};
  }

 private:
  /// Parses statements up to a tag whose first word is one of `end_words`; the tag itself is not consumed.
  std::vector<Statement> body(std::initializer_list<const char*> end_words) {
    const Level level(*this);
    std::vector<Statement> statements;
    for (;;) {
      if (current().kind == TokenKind::text) {
        statements.push_back({.kind = Statement::Kind::text, .line = current().line, .text = current().text});
        ++position_;
      } else if (current().kind == TokenKind::begin_output) {
        ++position_;
        statements.push_back({.kind = Statement::Kind::output, .line = current().line});
        statements.back().expressions.push_back(tuple());
        if (current().kind != TokenKind::end_output)
          fail("expected the end of the tag, found " + describe(current()));
        ++position_;
      } else if (current().kind == TokenKind::begin_block) {
        const auto ends_here = [&](const char* word) { return peek().text == word; };
        if (peek().kind == TokenKind::name && std::any_of(end_words.begin(), end_words.end(), ends_here))
          return statements;
        ++position_;
        statements.push_back(block());
      } else {
        return statements;
      }
    }
  }

  /// Parses the end of the opening tag, a body, and its closing tag `word`.
  std::vector<Statement> body_until(const char* word) {
    begin_body();
    std::vector<Statement> statements = body({word});
    expect_tag(word);
    return statements;
  }
  /// The same for a body that has its own scope.
  std::vector<Statement> scoped_body_until(const char* word) {
    const size_t unsupported_before = unsupported_.size();
    std::vector<Statement> statements = body_until(word);
    keep_unsupported(unsupported_before);
    return statements;
  }
  void begin_body() {
    skip_symbol(":");  // jinja2 allows a colon, as in Python
    expect_tag_end();
  }

  Statement block() {
    const int line = current().line;
    const std::string word = name();
    Statement statement{.line = line};
    if (word == "if") {
      condition(statement);
    } else if (word == "for") {
      loop(statement);
    } else if (word == "set") {
      set(statement);
    } else if (word == "macro") {
      macro(statement);
    } else if (word == "call") {
      call(statement);
    } else if (word == "filter") {
      filter(statement);
    } else if (word == "with") {
      with(statement);
    } else if (word == "generation") {
      statement.kind = Statement::Kind::generation;
      macro_body(statement, "endgeneration");
    } else if (word == "print") {
      print(statement);
    } else if (word == "break" || word == "continue") {
      if (loops_ == 0) fail("{% " + word + " %} stands in no loop");
      statement.kind = word == "break" ? Statement::Kind::break_loop : Statement::Kind::continue_loop;
      expect_tag_end();
    } else {
      --position_;
      const bool other_files =
          word == "include" || word == "import" || word == "from" || word == "extends" || word == "block";
      fail("{% " + word + " %} is not supported" +
           (other_files ? ", since a chat template is one file" : ""));
    }
    return statement;
  }

  /// A body in which break and continue do not refer to a loop around it.
  std::vector<Statement> body_outside_loops(const char* end) {
    const int loops = std::exchange(loops_, 0);
    std::vector<Statement> statements = scoped_body_until(end);
    loops_ = loops;
    return statements;
  }

  void expect_tag(const char* word) {
    if (current().kind != TokenKind::begin_block || peek().text != word)
      fail(std::string("expected {% ") + word + " %}, found " + describe(current()));
    position_ += 2;
    expect_tag_end();
  }

  void condition(Statement& statement) {
    const size_t unsupported_before = unsupported_.size();
    statement.kind = Statement::Kind::condition;
    do {
      statement.expressions.push_back(tuple(false));
      begin_body();
      statement.bodies.push_back(body({"elif", "else", "endif"}));
    } while (skip_block("elif"));
    if (skip_block("else")) {
      statement.bodies.push_back(body_until("endif"));
    } else {
      expect_tag("endif");
    }
    drop_conditional_unsupported(unsupported_before);
  }
  bool skip_block(const char* word) {
    const bool found = current().kind == TokenKind::begin_block && peek().text == word;
    if (found) position_ += 2;
    return found;
  }

  void loop(Statement& statement) {
    statement.kind = Statement::Kind::loop;
    statement.targets.push_back(target(false));
    check_no_loop(statement.targets[0]);
    if (!skip_word("in")) fail("expected \"in\", found " + describe(current()));
    statement.expressions.push_back(tuple(false));
    if (skip_word("if")) statement.expressions.push_back(expression());
    statement.recursive = skip_word("recursive");
    begin_body();
    const size_t unsupported_before = unsupported_.size();
    ++loops_;
    statement.bodies.push_back(body({"else", "endfor"}));
    --loops_;
    if (skip_block("else")) {
      statement.bodies.push_back(body_until("endfor"));
    } else {
      expect_tag("endfor");
    }
    keep_unsupported(unsupported_before);
  }
  void check_no_loop(const Expression& target) const {
    if (target.kind == Expression::Kind::name && target.symbol == loop_symbol)
      fail("an item of a loop cannot be named \"loop\"");
    for (const Expression& part : target.parts) check_no_loop(part);
  }

  void set(Statement& statement) {
    statement.kind = Statement::Kind::set;
    statement.targets.push_back(target(true));
    if (skip_symbol("=")) {
      statement.expressions.push_back(tuple());
      return expect_tag_end();
    }
    statement.kind = Statement::Kind::set_block;
    Expression captured = {.kind = Expression::Kind::name, .line = statement.line, .symbol = captured_symbol};
    while (skip_symbol("|")) captured = filter_of(std::move(captured));
    statement.expressions.push_back(std::move(captured));
    if (current().kind != TokenKind::end_block && !is_symbol(":"))
      fail("expected \"=\", found " + describe(current()));
    statement.bodies.push_back(scoped_body_until("endset"));
  }

  void filter(Statement& statement) {
    statement.kind = Statement::Kind::filter;
    Expression captured = {.kind = Expression::Kind::name, .line = statement.line, .symbol = captured_symbol};
    do captured = filter_of(std::move(captured));
    while (skip_symbol("|"));
    statement.expressions.push_back(std::move(captured));
    statement.bodies.push_back(scoped_body_until("endfilter"));
  }

  void print(Statement& statement) {
    statement.kind = Statement::Kind::output;
    if (current().kind != TokenKind::end_block) {
      do statement.expressions.push_back(expression());
      while (skip_symbol(","));
    }
    expect_tag_end();
  }

  void with(Statement& statement) {
    statement.kind = Statement::Kind::scope;
    while (current().kind != TokenKind::end_block && !is_symbol(":")) {
      if (!statement.targets.empty()) expect_symbol(",");
      const bool in_parentheses = is_symbol("(");
      statement.targets.push_back(in_parentheses ? target(false) : single_target());
      expect_symbol("=");
      statement.expressions.push_back(expression());
    }
    statement.bodies.push_back(scoped_body_until("endwith"));
  }
  Expression single_target() {
    const int line = current().line;
    const std::string text = name();
    return {.kind = Expression::Kind::name, .line = line, .symbol = symbol_of(text), .text = text};
  }

  void parameters(Parameters& result) {
    expect_symbol("(");
    comma_list_until(")", [&] {
      result.names.push_back(name());
      result.symbols.push_back(symbol_of(result.names.back()));
      if (skip_symbol("=")) {
        result.defaults.push_back(expression());
      } else if (!result.defaults.empty()) {
        fail("a parameter without a default stands behind one that has one");
      }
    });
  }

  /// The body of a macro.  Which implicit parameters (caller, varargs, kwargs) it has depends on the names it
  /// uses.
  void macro_body(Statement& statement, const char* end) {
    macros_.push_back(&statement.parameters);
    statement.bodies.push_back(body_outside_loops(end));
    macros_.pop_back();
    Parameters& parameters = statement.parameters;
    const auto has = [&](int symbol) {
      return std::count(parameters.symbols.begin(), parameters.symbols.end(), symbol) > 0;
    };
    parameters.uses_varargs &= !has(varargs_symbol);
    parameters.uses_kwargs &= !has(kwargs_symbol);
    if (!parameters.uses_caller || !has(caller_symbol)) return;
    const auto at = std::find(parameters.symbols.begin(), parameters.symbols.end(), caller_symbol) -
                    parameters.symbols.begin();
    if (at < std::ssize(parameters.symbols) - std::ssize(parameters.defaults))
      fail("the parameter \"caller\" needs a default");
    parameters.uses_caller = false;
  }

  void macro(Statement& statement) {
    statement.kind = Statement::Kind::macro;
    statement.text = name();
    statement.symbol = symbol_of(statement.text);
    parameters(statement.parameters);
    macro_body(statement, "endmacro");
  }

  void call(Statement& statement) {
    statement.kind = Statement::Kind::call;
    statement.text = "caller";
    if (is_symbol("(")) parameters(statement.parameters);
    statement.expressions.push_back(expression());
    if (statement.expressions[0].kind != Expression::Kind::call) fail("{% call %} needs a call");
    macro_body(statement, "endcall");
  }

  int loops_ = 0;  // depth of the loops that a break can leave
};

}  // namespace

Program parse(std::string_view text) {
  reset_template_work();
  return Parser(text).parse();
}

}  // namespace clover::data::jinja
