// Oracle: the output of the PyPI package jinja2 for the same templates
// (scripts/goldens/make_jinja_goldens.py).
#include "data/chat/jinja/jinja_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "data/files/error.h"
#include "tests/support/goldens.h"
#include "tests/support/input_error.h"

namespace clover::data {
namespace {

using ordered_json = JinjaTemplate::json;

/// The rendered text; nothing when there is an error.
std::optional<std::string> rendered(const std::string& text, const ordered_json& variables) {
  try {
    return JinjaTemplate(text).render(variables).text;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

std::string error_of(const std::string& text) {
  return test::input_error([&] { JinjaTemplate(text).render(ordered_json::object()); });
}

TEST(Jinja, RendersAsPythonDoes) {
  std::ifstream file(test::goldens() / "jinja.json");
  const ordered_json golden = ordered_json::parse(file);
  for (const ordered_json& one : golden["cases"]) {
    const std::string text = one["template"];
    const std::optional<std::string> found = rendered(text, golden["variables"]);
    ASSERT_EQ(found.has_value(), !one["text"].is_null()) << text;
    EXPECT_EQ(found.value_or(""), one["text"].is_null() ? "" : one["text"].get<std::string>()) << text;
  }
}

TEST(Jinja, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\nb {% if x %}\nc"), "line 3: expected {% endif %}, found the end of the template");
  EXPECT_EQ(error_of("\n{{ x.y }}"), "line 2: \"y\" of something undefined (x)");
  EXPECT_EQ(error_of("{% set x = 1 %}\n{{ x | sha256 }}"), "line 2: the filter \"sha256\" is not supported");
  EXPECT_EQ(error_of("{{ raise_exception('roles must alternate') }}"), "roles must alternate");
  EXPECT_EQ(error_of("\n{% include 'a' %}"),
            "line 2: {% include %} is not supported, since a chat template is one file");
}

/// The error when a template is parsed; "" without one.
std::string error_at_load(const std::string& text) {
  return test::input_error([&] { const JinjaTemplate read(text); });
}

TEST(Jinja, WhatIsLackingIsSaidWhenATemplateIsRead) {
  for (const char* lacking :
       {"{{ x | pprint }}", "{{ x | random }}", "{{ x | urlize }}", "{{ lipsum() }}", "{{ x | nope }}",
        "{{ x is nope }}", "{% import 'a' as b %}", "{% extends 'a' %}", "{% block a %}{% endblock %}",
        "{% autoescape true %}{% endautoescape %}", "{% do 1 %}",
        "{{ 1234567890123456789012345678901234567890 }}",
        "{% if x %}{% for y in x %}{{ y | nope }}{% endfor %}{% endif %}"}) {
    EXPECT_THAT(error_at_load("a\n" + std::string(lacking)),
                ::testing::AllOf(::testing::StartsWith("line 2: "), ::testing::HasSubstr("not supported")))
        << lacking;
  }
  // As in jinja2, a filter in a branch that is not taken may be unknown.
  EXPECT_EQ(rendered("{% if x %}{{ x | nope }}{% endif %}a{{ x | nope if x }}", ordered_json::object()), "a");
  EXPECT_EQ(error_of("{% if 1 %}\n{{ 1 | nope }}{% endif %}"),
            "line 2: the filter \"nope\" is not supported");
  // Python prints addresses, which differ between runs.
  for (const char* address :
       {"{{ ['a'] | map('upper') }}", "{{ 'a'.upper }}", "{{ dict }}", "{{ cycler(1) }}"})
    EXPECT_THAT(error_of(address), ::testing::HasSubstr("not supported")) << address;
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// Templates are untrusted: they may not exhaust the stack, the memory, or time.
TEST(Jinja, NoTemplateRunsAway) {
  for (const std::string& text :
       {std::string("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
        std::string(
            "{% set n = namespace(t='ab') %}{% for a in range(99) %}{% set n.t = n.t ~ n.t %}{% endfor %}"),
        std::string(
            "{% set n = namespace(t=[]) %}{% for a in range(999) %}{% set n.t = [n.t] %}{% endfor %}"),
        std::string("{{ 'a' * 999999999999 }}"),
        std::string("{{ [1] * 999999999 }}"),
        std::string("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
        std::string("{{ '%1000000000d' % 1 }}"),
        std::string("{{ '%*d' % (10 ** 9, 1) }}"),
        std::string("{{ '%.1000000000f' % 1.0 }}"),
        std::string("{{ '{:1000000000}'.format(1) }}"),
        std::string("{{ 'a'.center(10 ** 9) }}"),
        std::string("{{ 'a'.zfill(10 ** 9) }}"),
        std::string("{{ 'a' | center(10 ** 12) }}"),
        std::string("{{ 'a' | indent(10 ** 9, true) }}"),
        std::string("{{ [1] | tojson(indent=10 ** 9) }}"),
        std::string("{{ 'a\t'.expandtabs(10 ** 9) }}"),
        std::string("{{ 10 ** 1000000000 }}"),
        std::string("{{ [1] | batch(10 ** 9, 0) | list }}"),
        std::string("{% set n = namespace(t=[1]) %}{% for a in range(90) %}{% set n.t = [n.t, n.t] %}"
                    "{% endfor %}{{ n.t }}"),
        std::string("{% set n = namespace(t=[1], u=[1]) %}{% for a in range(90) %}{% set n.t = [n.t, n.t] %}"
                    "{% set n.u = [n.u, n.u] %}{% endfor %}{{ n.t == n.u }}"),
        std::string(
            "{% set n = namespace(t=[]) %}{% for a in range(99999) %}{% set n.t = n.t | map('upper') %}"
            "{% endfor %}"),
        std::string("{% set n = namespace() %}{% set n.n = n %}{{ n }}"),
        std::string("{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}"),
        std::string("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
        "{% for " + repeated("(", 100'000) + "a" + repeated(")", 100'000) + " in x %}{% endfor %}",
        "{{ 1" + repeated("~1", 100'000) + repeated("**1", 100'000) + " }}",
        "{{ x" + repeated("()", 100'000) + " }}",
        "{{ 1" + repeated(" if 1", 100'000) + " }}",
        "{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}",
        "{{ 1" + repeated("+1", 100'000) + " }}",
        "{{ " + repeated("not ", 100'000) + "1 }}",
        "{{ 1" + repeated("|abs", 100'000) + " }}",
        repeated("{% if 1 %}", 100'000),
        "{{ " + repeated("[", 100'000) + repeated("]", 100'000) + " }}"}) {
    EXPECT_FALSE(rendered(text, ordered_json::object()).has_value()) << text.substr(0, 80);
  }
}

// Values that contain themselves, and long chains of values, are freed without deep recursion.
TEST(Jinja, ChainsAreTakenApartOneByOne) {
  EXPECT_EQ(
      rendered("{% set n = namespace(x=none) %}{% for i in range(99999) %}{% set n.x = namespace(x=n.x) %}"
               "{% endfor %}{{ n.x.x is defined }}",
               ordered_json::object()),
      "True");
  EXPECT_EQ(rendered("{% set n = namespace(m=none) %}{% for i in range(20000) %}{% set p = n.m %}"
                     "{% macro m() %}{{ p is none }}{% endmacro %}{% set n.m = m %}{% endfor %}{{ n.m() }}",
                     ordered_json::object()),
            "False");
}

TEST(Jinja, GenerationsAreMarkedInBytes) {
  const JinjaTemplate marked(
      "é{% for m in x %}{% generation %}{{ m }}ü{% endgeneration %};{% endfor %}{% set q %}{% generation %}a"
      "{% endgeneration %}{% endset %}{{ q }}");
  const JinjaTemplate::Rendered made = marked.render({{"x", {"a", "bc"}}});
  EXPECT_EQ(made.text, "éaü;bcü;a");
  EXPECT_THAT(made.generations, ::testing::ElementsAre(std::pair(2, 5), std::pair(6, 10)));
}

}  // namespace
}  // namespace clover::data
