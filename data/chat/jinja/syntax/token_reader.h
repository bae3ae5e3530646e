#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/jinja/syntax/lexer.h"
#include "data/files/error.h"

namespace clover::data::jinja {

/// A place in the tokens of a template, for the parsers.
class TokenReader {
 protected:
  static constexpr int deepest = 100;  // expressions and blocks within each other

  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError("line " + std::to_string(now().line) + ": " + what);
  }
  static std::string described(const Token& token) {
    switch (token.kind) {
      case Token::Kind::end:
        return "the end of the template";
      case Token::Kind::end_block:
      case Token::Kind::end_output:
        return "the end of the tag";
      default:
        return "\"" + token.text.substr(0, 40) + "\"";
    }
  }
  bool is_symbol(const char* text) const { return now().kind == Token::Kind::symbol && now().text == text; }
  bool is_word(const char* text) const { return now().kind == Token::Kind::name && now().text == text; }
  bool skip_symbol(const char* text) {
    const bool is = is_symbol(text);
    at_ += is;
    return is;
  }
  bool skip_word(const char* text) {
    const bool is = is_word(text);
    at_ += is;
    return is;
  }
  void expect_symbol(const char* text) {
    if (!skip_symbol(text)) fail(std::string("expected \"") + text + "\", found " + described(now()));
  }
  void expect_end() {
    if (now().kind != Token::Kind::end_block) fail("expected the end of the tag, found " + described(now()));
    ++at_;
  }
  std::string name() {
    if (now().kind != Token::Kind::name) fail("expected a name, found " + described(now()));
    return tokens_[at_++].text;
  }

  /// `item` for each of what stands between commas, up to a bracket.
  template <class Item>
  void until(const char* closing, const Item& item) {
    while (!skip_symbol(closing)) {
      item();
      if (!is_symbol(closing)) expect_symbol(",");
    }
  }

  /// Counts what is within what.
  struct Level {
    explicit Level(TokenReader& reader) : reader(reader) {
      if (++reader.depth_ > deepest) reader.fail("expected less within each other");
    }
    ~Level() { --reader.depth_; }
    TokenReader& reader;
  };

  std::vector<Token> tokens_;
  size_t at_ = 0;

 private:
  int depth_ = 0;
};

}  // namespace clover::data::jinja
