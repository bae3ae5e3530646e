#include <algorithm>
#include <initializer_list>
#include <utility>

#include "data/jinja/expression_parser.h"
#include "data/jinja/syntax.h"

namespace clover::data::jinja {
namespace {

using Kind = Token::Kind;

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view text) : ExpressionParser(cut(text)) {}

  std::vector<Statement> parse() {
    std::vector<Statement> all = body({});
    if (now().kind != Kind::end) fail("found " + described(now()) + " that nothing opened");
    return all;
  }

 private:
  /// Up to a block whose first word is one of `ends`, which is left to the caller.
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
    } else if (word == "generation") {
      statement.kind = Statement::Kind::generation;
      expect_end();
      statement.bodies.push_back(body({"endgeneration"}));
      close("endgeneration");
    } else if (word == "break" || word == "continue") {
      statement.kind = word == "break" ? Statement::Kind::stop : Statement::Kind::next;
      expect_end();
    } else {
      --at_;
      fail("{% " + word + " %} is not supported");
    }
    return statement;
  }

  void close(const char* word) {
    if (now().kind != Kind::begin_block || following().text != word)
      fail(std::string("expected {% ") + word + " %}, found " + described(now()));
    at_ += 2;
    if (now().kind == Kind::name) ++at_;  // {% endmacro its_name %}
    expect_end();
  }

  void condition(Statement& statement) {
    statement.kind = Statement::Kind::condition;
    do {
      statement.expressions.push_back(expression());
      expect_end();
      statement.bodies.push_back(body({"elif", "else", "endif"}));
    } while (skip_block("elif"));
    if (skip_block("else")) {
      expect_end();
      statement.bodies.push_back(body({"endif"}));
    }
    close("endif");
  }
  bool skip_block(const char* word) {
    const bool is = now().kind == Kind::begin_block && following().text == word;
    if (is) at_ += 2;
    return is;
  }

  void loop(Statement& statement) {
    statement.kind = Statement::Kind::loop;
    const bool brackets = skip_symbol("(");
    do statement.names.push_back(name());
    while (skip_symbol(","));
    if (brackets) expect_symbol(")");
    if (!skip_word("in")) fail("expected \"in\", found " + described(now()));
    statement.expressions.push_back(either());
    if (skip_word("if")) statement.expressions.push_back(expression());
    if (skip_word("recursive")) fail("recursive loops are not supported");
    expect_end();
    statement.bodies.push_back(body({"else", "endfor"}));
    if (skip_block("else")) {
      expect_end();
      statement.bodies.push_back(body({"endfor"}));
    }
    close("endfor");
  }

  void set(Statement& statement) {
    statement.kind = Statement::Kind::set;
    statement.names.push_back(name());
    if (skip_symbol(".")) {
      statement.text = std::exchange(statement.names[0], name());
    } else {
      while (skip_symbol(",")) statement.names.push_back(name());
    }
    if (skip_symbol("=")) {
      statement.expressions.push_back(tuple());
      return expect_end();
    }
    if (!statement.text.empty() || statement.names.size() > 1)
      fail("expected \"=\", found " + described(now()));
    statement.kind = Statement::Kind::set_block;
    expect_end();
    statement.bodies.push_back(body({"endset"}));
    close("endset");
  }

  void macro(Statement& statement) {
    statement.kind = Statement::Kind::macro;
    statement.text = name();
    expect_symbol("(");
    until(")", [&] {
      statement.names.push_back(name());
      statement.expressions.push_back(skip_symbol("=") ? expression() : undefined());
    });
    expect_end();
    statement.bodies.push_back(body({"endmacro"}));
    close("endmacro");
  }
};

}  // namespace

std::vector<Statement> parse(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace clover::data::jinja
