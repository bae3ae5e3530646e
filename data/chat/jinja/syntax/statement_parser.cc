#include <algorithm>
#include <initializer_list>
#include <utility>

#include "data/chat/jinja/syntax/expression_parser.h"
#include "data/chat/jinja/syntax/syntax.h"

namespace clover::data::jinja {
namespace {

using Kind = Token::Kind;

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view text) : ExpressionParser(tokenize(text)) {}

  Program parse() {
    std::vector<Statement> all = body({});
    if (now().kind != Kind::end) fail("found " + described(now()) + " that nothing opened");
    check_supported();
    return {std::move(all), std::move(names_)};
  }

 private:
  /// Parses statements up to a tag whose first word is one of `ends`; the tag itself is not consumed.
  std::vector<Statement> body(std::initializer_list<const char*> ends) {
    const Level level(*this);
    std::vector<Statement> all;
    for (;;) {
      if (now().kind == Kind::text) {
        all.push_back({.kind = Statement::Kind::text, .line = now().line, .text = now().text});
        ++at_;
      } else if (now().kind == Kind::begin_output) {
        ++at_;
        all.push_back({.kind = Statement::Kind::output, .line = now().line});
        all.back().expressions.push_back(tuple());
        if (now().kind != Kind::end_output) fail("expected the end of the tag, found " + described(now()));
        ++at_;
      } else if (now().kind == Kind::begin_block) {
        const auto ends_here = [&](const char* word) { return following().text == word; };
        if (following().kind == Kind::name && std::any_of(ends.begin(), ends.end(), ends_here)) return all;
        ++at_;
        all.push_back(block());
      } else {
        return all;
      }
    }
  }

  /// Parses the end of the opening tag, a body, and its closing tag `word`.
  std::vector<Statement> body_until(const char* word) {
    begin_body();
    std::vector<Statement> all = body({word});
    close(word);
    return all;
  }
  /// The same for a body that has its own scope.
  std::vector<Statement> scoped_body_until(const char* word) {
    const size_t unknown = unsupported_.size();
    std::vector<Statement> all = body_until(word);
    keep_unsupported(unknown);
    return all;
  }
  void begin_body() {
    skip_symbol(":");  // jinja2 allows a colon, as in Python
    expect_end();
  }

  Statement block() {
    const int line = now().line;
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
      expect_end();
    } else {
      --at_;
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
    std::vector<Statement> all = scoped_body_until(end);
    loops_ = loops;
    return all;
  }

  void close(const char* word) {
    if (now().kind != Kind::begin_block || following().text != word)
      fail(std::string("expected {% ") + word + " %}, found " + described(now()));
    at_ += 2;
    expect_end();
  }

  void condition(Statement& statement) {
    const size_t unknown = unsupported_.size();
    statement.kind = Statement::Kind::condition;
    do {
      statement.expressions.push_back(tuple(false));
      begin_body();
      statement.bodies.push_back(body({"elif", "else", "endif"}));
    } while (skip_block("elif"));
    if (skip_block("else")) {
      statement.bodies.push_back(body_until("endif"));
    } else {
      close("endif");
    }
    drop_conditional_unsupported(unknown);
  }
  bool skip_block(const char* word) {
    const bool is = now().kind == Kind::begin_block && following().text == word;
    if (is) at_ += 2;
    return is;
  }

  void loop(Statement& statement) {
    statement.kind = Statement::Kind::loop;
    statement.targets.push_back(target(false));
    check_no_loop(statement.targets[0]);
    if (!skip_word("in")) fail("expected \"in\", found " + described(now()));
    statement.expressions.push_back(tuple(false));
    if (skip_word("if")) statement.expressions.push_back(expression());
    statement.recursive = skip_word("recursive");
    begin_body();
    const size_t unknown = unsupported_.size();
    ++loops_;
    statement.bodies.push_back(body({"else", "endfor"}));
    --loops_;
    if (skip_block("else")) {
      statement.bodies.push_back(body_until("endfor"));
    } else {
      close("endfor");
    }
    keep_unsupported(unknown);
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
      return expect_end();
    }
    statement.kind = Statement::Kind::set_block;
    Expression written = {.kind = Expression::Kind::name, .line = statement.line, .symbol = captured_symbol};
    while (skip_symbol("|")) written = filter_of(std::move(written));
    statement.expressions.push_back(std::move(written));
    if (now().kind != Kind::end_block && !is_symbol(":")) fail("expected \"=\", found " + described(now()));
    statement.bodies.push_back(scoped_body_until("endset"));
  }

  void filter(Statement& statement) {
    statement.kind = Statement::Kind::filter;
    Expression written = {.kind = Expression::Kind::name, .line = statement.line, .symbol = captured_symbol};
    do written = filter_of(std::move(written));
    while (skip_symbol("|"));
    statement.expressions.push_back(std::move(written));
    statement.bodies.push_back(scoped_body_until("endfilter"));
  }

  void print(Statement& statement) {
    statement.kind = Statement::Kind::output;
    if (now().kind != Kind::end_block) {
      do statement.expressions.push_back(expression());
      while (skip_symbol(","));
    }
    expect_end();
  }

  void with(Statement& statement) {
    statement.kind = Statement::Kind::scope;
    while (now().kind != Kind::end_block && !is_symbol(":")) {
      if (!statement.targets.empty()) expect_symbol(",");
      const bool brackets = is_symbol("(");
      statement.targets.push_back(brackets ? target(false) : single_target());
      expect_symbol("=");
      statement.expressions.push_back(expression());
    }
    statement.bodies.push_back(scoped_body_until("endwith"));
  }
  Expression single_target() {
    const int line = now().line;
    const std::string text = name();
    return {.kind = Expression::Kind::name, .line = line, .symbol = symbol_of(text), .text = text};
  }

  void parameters(Parameters& all) {
    expect_symbol("(");
    comma_list_until(")", [&] {
      all.names.push_back(name());
      all.symbols.push_back(symbol_of(all.names.back()));
      if (skip_symbol("=")) {
        all.defaults.push_back(expression());
      } else if (!all.defaults.empty()) {
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
    Parameters& all = statement.parameters;
    const auto has = [&](int symbol) {
      return std::count(all.symbols.begin(), all.symbols.end(), symbol) > 0;
    };
    all.uses_varargs &= !has(varargs_symbol);
    all.uses_kwargs &= !has(kwargs_symbol);
    if (!all.uses_caller || !has(caller_symbol)) return;
    const auto at = std::find(all.symbols.begin(), all.symbols.end(), caller_symbol) - all.symbols.begin();
    if (at < std::ssize(all.symbols) - std::ssize(all.defaults))
      fail("the parameter \"caller\" needs a default");
    all.uses_caller = false;
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
  reset_work();
  return Parser(text).parse();
}

}  // namespace clover::data::jinja
