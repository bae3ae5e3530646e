#include "data/training/record_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include <nlohmann/json.hpp>
#include <random>
#include <vector>

namespace clover::data {
namespace {

using ::testing::ElementsAre;
using Records = std::vector<std::pair<int64_t, std::string>>;

Records records_of(std::string_view text) {
  RecordTexts texts(text);
  Records records;
  for (RecordTexts::Record record; texts.next(record);)
    records.emplace_back(record.line, record.error.empty() ? std::string(record.text) : "! " + record.error);
  return records;
}

TEST(RecordTexts, AreLinesUnlessTheTextIsAnArray) {
  EXPECT_EQ(records_of("\xef\xbb\xbf{}\n\n {\"a\":1}\n"), (Records{{1, "{}"}, {3, " {\"a\":1}"}}));
  EXPECT_EQ(records_of("[1]\n{}\n"), (Records{{1, "[1]"}, {2, "{}"}})) << "one bad line is no array";
  EXPECT_EQ(records_of(""), Records{});
}

TEST(RecordTexts, AreTheElementsOfAnArrayHoweverItIsWritten) {
  const Records one_line{{1, R"({"a":"]},[\""})"}, {1, "{\"b\":[1,{}]}"}};
  EXPECT_EQ(records_of(R"([{"a":"]},[\""},{"b":[1,{}]}])"), one_line);
  EXPECT_EQ(records_of("\n[\n  {\n \"a\": 1},\n\n  {}\n]\n"), (Records{{3, "{\n \"a\": 1}"}, {6, "{}"}}));
  EXPECT_EQ(records_of("[]"), Records{});
  EXPECT_EQ(records_of("[\n]\n"), Records{});
}

TEST(RecordTexts, ADamagedArrayIsReadAsFarAsItGoes) {
  EXPECT_EQ(records_of("[{},\n{\"a\":"), (Records{{1, "{}"},
                                                  {2, "{\"a\":"},
                                                  {2,
                                                   "! expected \"]\" at the end of the "
                                                   "array, found the end of the file"}}));
  EXPECT_EQ(records_of("[\n{}\n{}]").size(), 2u);
  EXPECT_EQ(records_of("[\n{}]\nx").back().second, "! expected nothing behind the array, found more");
  EXPECT_EQ(records_of("[\n{},]").back().second, "! expected an element of the array, found none");
}

// The parser of nlohmann is the oracle.
TEST(RecordTexts, AreWhatAParserFinds) {
  std::mt19937 random(7);
  const std::function<nlohmann::json(int)> value = [&](int depth) -> nlohmann::json {
    switch (random() % (depth > 3 ? 3 : 5)) {
      case 0:
        return random() % 100;
      case 1:
        return std::string("a\"[]{},\\\n").substr(random() % 8);
      case 2:
        return nullptr;
      case 3: {
        nlohmann::json list = nlohmann::json::array();
        for (int i = random() % 4; i > 0; --i) list.push_back(value(depth + 1));
        return list;
      }
      default: {
        nlohmann::json object = nlohmann::json::object();
        for (int i = random() % 4; i > 0; --i) object["k}" + std::to_string(i)] = value(depth + 1);
        return object;
      }
    }
  };
  for (int round = 0; round < 300; ++round) {
    nlohmann::json list = nlohmann::json::array();
    for (int i = 1 + random() % 5; i > 0; --i) list.push_back(value(0));
    nlohmann::json read = nlohmann::json::array();
    for (const auto& [line, text] : records_of(list.dump(round % 2 ? 2 : -1)))
      read.push_back(nlohmann::json::parse(text));
    ASSERT_EQ(read, list);
  }
}

}  // namespace
}  // namespace clover::data
