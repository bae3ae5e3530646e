#include "data/training/sample_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "data/training/record_origin.h"

namespace clover::data {
namespace {

using nlohmann::json;

json say(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

/// For each record the index of the first record of its group.
std::vector<size_t> groups_of(const std::vector<json>& records) {
  SampleGroups groups;
  for (const json& record : records) groups.add(sample_origin(parse_training_record(record.dump()), 0));
  const std::vector<uint64_t> keys = groups.keys();
  std::vector<size_t> first;
  for (const uint64_t key : keys) first.push_back(std::ranges::find(keys, key) - keys.begin());
  return first;
}

using Firsts = std::vector<size_t>;

TEST(SampleGroups, AnswersOfOnePromptBelongTogether) {
  const json system = say("system", std::string(500, 's'));
  const auto chat = [&](const std::string& question, const std::string& answer) {
    return json{{"messages", {system, say("user", question), say("assistant", answer)}}};
  };
  // A common system message does not make a group.
  EXPECT_EQ(groups_of({chat("a", "1"), chat("b", "1"), chat("a", "2"), chat(" a\n", "3")}),
            (Firsts{0, 1, 0, 0}));
  EXPECT_EQ(groups_of({{{"question", "a"}, {"answer", "1"}},
                       {{"question", "a"}, {"answer", "2"}},
                       {{"question", "b"}, {"answer", "2"}},
                       {{"conversations",
                         {{{"from", "human"}, {"value", "a"}}, {{"from", "gpt"}, {"value", "3"}}}}}}),
            (Firsts{0, 0, 2, 0}));
  EXPECT_EQ(groups_of({{{"prompt", "Once"}, {"completion", " upon"}},
                       {{"prompt", "Twice"}, {"completion", " upon"}},
                       {{"prompt", "Once"}, {"completion", " more"}}}),
            (Firsts{0, 1, 0}));
  EXPECT_EQ(groups_of({{{"instruction", "do"}, {"input", "x"}, {"output", "1"}},
                       {{"instruction", "do"}, {"input", "y"}, {"output", "1"}},
                       {{"instruction", "do"}, {"input", "x"}, {"output", "2"}}}),
            (Firsts{0, 1, 0}));
}

TEST(SampleGroups, LinesOfAConversationBelongTogether) {
  const json q1 = say("user", "first"), a1 = say("assistant", "an answer"), q2 = say("user", "second"),
             a2 = say("assistant", "another"), other = say("user", "other");
  const json messages_1 = json::array({q1, a1}), messages_2 = json::array({q1, a1, q2, a2});
  // Each line is supervised in another place; the batch form only in its last answer.
  const std::vector<json> lines{{{"messages", messages_1}},
                                {{"messages", messages_2}},
                                {{"messages", json::array({q1, a1, q2})},
                                 {"text", "x"},
                                 {"token_ids", {1, 2}},
                                 {"finish_reason", "stop"}},
                                {{"messages", json::array({other, a1})}},
                                {{"turns", {"first", "second"}},
                                 {"text", {"x", "y"}},
                                 {"token_ids", {{1, 2}, {3}}},
                                 {"finish_reason", {"stop", "stop"}}}};
  EXPECT_EQ(groups_of(lines), (Firsts{0, 0, 0, 3, 0}));
}

TEST(SampleGroups, TextsThatContinueATextBelongTogether) {
  const std::string one = "User: what is it?\nBot:", two = one + " a thing\nUser: which?\nBot:";
  const std::vector<json> prompts{
      {{"prompt", two}, {"completion", " that one"}},
      {{"prompt", one}, {"completion", " a thing\n"}},
      {{"prompt", one + " a thought\nUser: whose?\nBot:"}, {"completion", " his"}},
      {{"prompt", "User: what was it?\nBot:"}, {"completion", " a thing"}},
      {{"prompt", one}, {"completion", " a thought"}},
      {{"prompt", two + " that one\nUser: why?\nBot:"}, {"completion", " so"}}};
  EXPECT_EQ(groups_of(prompts), (Firsts{0, 0, 0, 3, 0, 0}));
  const std::string text = "It was a dark and stormy night";
  EXPECT_EQ(
      groups_of(
          {{{"text", text + ". Rain fell."}}, {{"text", text + ";"}}, {{"text", text}}, {{"text", "It"}}}),
      (Firsts{0, 0, 0, 3}));
}

// For example a text after a BOS, or with an empty prompt.
TEST(SampleGroups, WithoutAPromptOnlyTheWholeCounts) {
  EXPECT_EQ(groups_of({{{"text", "one"}}, {{"text", "two"}}, {{"text", "one"}}}), (Firsts{0, 1, 0}));
  EXPECT_EQ(groups_of({{{"prompt", ""}, {"completion", "one"}},
                       {{"prompt", " "}, {"completion", "two"}},
                       {{"prompt", ""}, {"completion", "one"}}}),
            (Firsts{0, 1, 0}));
}

// Random prefixes of random texts over two letters; the oracle compares all pairs.
TEST(SampleGroups, FindEveryBeginningThatComparingAllPairsFinds) {
  std::mt19937 random(5);
  std::vector<SampleOrigin> origins;
  for (int i = 0; i < 300; ++i) {
    const std::string begun = i > 0 && random() % 2 ? origins[random() % i].full_text : "";
    const auto more = [&](size_t least) {
      std::string text;
      for (size_t n = least + random() % 6; n > 0; --n) text += "ab"[random() % 2];
      return text;
    };
    SampleOrigin origin{begun + more(7)};
    origin.full_text = origin.prompt + more(3);
    origins.push_back(origin);
  }
  std::vector<size_t> expected(origins.size());
  std::iota(expected.begin(), expected.end(), size_t{0});
  const auto join = [&](size_t a, size_t b) {
    const size_t from = std::max(expected[a], expected[b]), to = std::min(expected[a], expected[b]);
    std::ranges::replace(expected, from, to);
  };
  for (size_t a = 0; a < origins.size(); ++a) {
    for (size_t b = 0; b < origins.size(); ++b) {
      const bool continues =
          origins[a].full_text.size() >= 16 && origins[b].prompt.starts_with(origins[a].full_text);
      if (continues || origins[a].prompt == origins[b].prompt) join(a, b);
    }
  }
  SampleGroups groups;
  for (const SampleOrigin& origin : origins) groups.add(origin);
  const std::vector<uint64_t> keys = groups.keys();
  std::vector<size_t> found;
  for (const uint64_t key : keys) found.push_back(std::ranges::find(keys, key) - keys.begin());
  EXPECT_EQ(found, expected);
  EXPECT_GT(std::set(expected.begin(), expected.end()).size(), 20u);

  std::vector<size_t> order(origins.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  SampleGroups shuffled;
  for (const size_t i : order) shuffled.add(origins[i]);
  const std::vector<uint64_t> again = shuffled.keys();
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(again[i], keys[order[i]]);
}

TEST(HeldOutSamples, AreWholeGroupsOfAboutTheShare) {
  std::mt19937_64 random(3);
  for (const double share : {0.02, 0.1, 0.2, 0.5, 0.9}) {
    std::vector<uint64_t> keys;
    for (int group = 0; group < 200; ++group) keys.insert(keys.end(), 1 + random() % 8, random());
    std::ranges::shuffle(keys, random);
    const std::vector<uint8_t> held_out = held_out_samples(keys, share);
    std::map<uint64_t, std::set<int>> sides;
    for (size_t i = 0; i < keys.size(); ++i) sides[keys[i]].insert(held_out[i]);
    for (const auto& [key, of] : sides) EXPECT_EQ(of.size(), 1u);
    const double wanted = share * static_cast<double>(keys.size());
    const auto count = static_cast<double>(std::ranges::count(held_out, 1));
    EXPECT_LE(count, wanted);
    EXPECT_GT(count, wanted - 8);
  }
}

TEST(HeldOutSamples, AGroupThatIsMuchLargerStaysInTraining) {
  std::vector<uint64_t> keys(1000, 1);
  for (uint64_t key = 2; key < 202; ++key) keys.push_back(key << 40);
  const std::vector<uint8_t> held_out = held_out_samples(keys, 0.1);
  EXPECT_EQ(std::ranges::count(held_out, 1), 120);
  EXPECT_EQ(held_out[0], 0);
}

TEST(HeldOutSamples, OneGroupIsNeverParted) {
  EXPECT_THAT(held_out_samples({7, 7, 7}, 0.5), testing::Each(0));
  EXPECT_THAT(held_out_samples({7, 7, 8}, 1e-9), testing::ElementsAre(0, 0, 1));
  EXPECT_THAT(held_out_samples({7, 8}, 0), testing::Each(0));
  EXPECT_THAT(held_out_samples({}, 0.5), testing::IsEmpty());
}

}  // namespace
}  // namespace clover::data
