#include "data/training/token_store.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "data/files/files.h"
#include "data/files/safetensors.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::data {
namespace {

namespace fs = std::filesystem;
using test::input_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenStoreTest : public ::testing::Test {
 protected:
  TokenStore write(const std::vector<TrainingSample>& samples, double holdout,
                   const nlohmann::json& about = {}) {
    TokenStoreWriter writer(folder_, holdout, 1000);
    for (const TrainingSample& sample : samples) writer.add(sample);
    writer.finish(about);
    return TokenStore::open(folder_);
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_ / "store";
};

using Ids = std::vector<int64_t>;

std::multiset<Ids> ids_of(const TokenStore& store, Split split) {
  std::multiset<Ids> all;
  for (int64_t i = 0; i < store.size(split); ++i) {
    const auto ids = store.sample(split, i).ids;
    all.emplace(ids.begin(), ids.end());
  }
  return all;
}

std::vector<TrainingSample> random_samples(int count) {
  std::mt19937 random(7);
  std::vector<TrainingSample> samples;
  for (int i = 0; i < count; ++i) {
    TrainingSample sample;
    for (size_t length = 2 + random() % 20; length > 0; --length) sample.ids.push_back(random() % 1000);
    sample.supervised.assign(sample.ids.size(), 1);
    samples.push_back(sample);
  }
  return samples;
}

TEST_F(TokenStoreTest, GivesBackSamplesInTheirOrder) {
  const TokenStore store =
      write({{{5, 6, 7}, {0, 1, 1}, "math"}, {{999}, {1}, ""}, {{0, 1, 2, 3}, {0, 0, 0, 1}, "math"}}, 0,
            {{"sources", {"a"}}});
  ASSERT_EQ(store.size(Split::train), 3);
  EXPECT_EQ(store.size(Split::held_out), 0);
  EXPECT_EQ(store.supervised_tokens(Split::train), 4);
  const TokenStore::Sample sample = store.sample(Split::train, 2);
  EXPECT_THAT(sample.ids, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(sample.supervised, ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(sample.category, "math");
  EXPECT_THAT(store.sample(Split::train, 1).ids, ElementsAre(999));
  EXPECT_EQ(store.sample(Split::train, 1).category, "");
  EXPECT_EQ(store.metadata()["sources"], nlohmann::json({"a"}));
  EXPECT_EQ(store.metadata()["train"]["tokens"], 8);
  EXPECT_EQ(store.metadata()["version"], token_store_version);
}

TEST_F(TokenStoreTest, HoldsOutAboutTheShareAndTheSameSamplesInAnyOrder) {
  std::vector<TrainingSample> samples = random_samples(4000);
  const TokenStore store = write(samples, 0.1);
  EXPECT_EQ(store.size(Split::train) + store.size(Split::held_out), 4000);
  EXPECT_NEAR(store.size(Split::held_out), 400, 80);  // four standard deviations
  const auto held_out = ids_of(store, Split::held_out);
  std::shuffle(samples.begin(), samples.end(), std::mt19937(1));
  EXPECT_EQ(ids_of(write(samples, 0.1), Split::held_out), held_out);
  // A larger share holds out the same samples and more.
  const auto larger = ids_of(write(samples, 0.2), Split::held_out);
  EXPECT_TRUE(std::includes(larger.begin(), larger.end(), held_out.begin(), held_out.end()));
}

TEST_F(TokenStoreTest, NeitherSplitIsEmptyWhenSomethingIsHeldOut) {
  std::vector<TrainingSample> samples = random_samples(5);
  for (const double share : {1e-9, 0.999999999}) {
    const TokenStore store = write(samples, share);
    EXPECT_EQ(std::min(store.size(Split::train), store.size(Split::held_out)), 1) << share;
    const auto held_out = ids_of(store, Split::held_out);
    std::reverse(samples.begin(), samples.end());
    EXPECT_EQ(ids_of(write(samples, share), Split::held_out), held_out) << share;
  }
  const TrainingSample one = samples[0], two = samples[1];
  const TokenStore copies = write({one, two, one, two}, 1e-9);
  EXPECT_EQ(copies.size(Split::held_out), 2) << "copies of one sample must not be on both sides";
  EXPECT_EQ(ids_of(copies, Split::train).count(*ids_of(copies, Split::held_out).begin()), 0u);
  EXPECT_EQ(write({one, one}, 0.5).size(Split::held_out), 0) << "nor of one prompt, were it all there is";
  EXPECT_EQ(write({one}, 1e-9).size(Split::held_out), 0);
}

TEST_F(TokenStoreTest, RefusesWhatCannotBeStored) {
  EXPECT_THAT(input_error([&] { write({}, 0.1); }), HasSubstr("no sample"));
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_THAT(input_error([&] { write({{{1000}, {1}, ""}}, 0); }), HasSubstr("token id 1000"));
  EXPECT_THAT(input_error([&] { write({{{-1}, {1}, ""}}, 0); }), HasSubstr("token id -1"));
  EXPECT_THAT(input_error([&] { write({{{1, 2}, {1}, ""}}, 0); }), HasSubstr("2 and 1"));
  for (const double share : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THAT(input_error([&] { TokenStoreWriter(folder_, share, 10); }), HasSubstr("holdout"));
  }
}

TEST_F(TokenStoreTest, RefusesADamagedStore) {
  const std::vector<TrainingSample> samples = random_samples(50);
  write(samples, 0.2);
  const std::string about = read_file(folder_ / "store.json");
  const std::string tokens = read_file(folder_ / "tokens.safetensors");
  const auto error_with = [&](const std::string& about_text, const std::string& token_bytes) {
    write_file_atomically(folder_ / "store.json", about_text);
    write_file_atomically(folder_ / "tokens.safetensors", token_bytes);
    return input_error([&] { TokenStore::open(folder_); });
  };
  EXPECT_EQ(error_with(about, tokens), "");
  const auto changed = [&](const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json json = nlohmann::json::parse(about);
    change(json);
    return error_with(json.dump(), tokens);
  };
  EXPECT_THAT(changed([](auto& json) { json["version"] = 2; }), HasSubstr("version 2, expected 1"));
  EXPECT_THAT(changed([](auto& json) { json.erase("version"); }), HasSubstr("\"version\""));
  EXPECT_THAT(changed([](auto& json) { json["content_hash"] = "0"; }), HasSubstr("do not belong together"));
  EXPECT_THAT(changed([](auto& json) { json["vocab_size"] = 10; }), HasSubstr("outside the vocabulary"));
  EXPECT_THAT(changed([](auto& json) { json["categories"].clear(); }), HasSubstr("category"));
  EXPECT_THAT(changed([](auto& json) { json["train"]["tokens"] = 3; }), HasSubstr("train.ids"));
  EXPECT_THAT(changed([](auto& json) { json["train"]["samples"] = INT64_MAX; }),
              HasSubstr("impossibly large"));
  EXPECT_THAT(changed([](auto& json) { json["held_out"]["samples"] = 3; }), HasSubstr("held_out.offsets"));
  EXPECT_THAT(changed([](auto& json) { json["train"]["supervised_tokens"] = 3; }),
              HasSubstr("3 supervised tokens"));
  EXPECT_THAT(changed([](auto& json) { json = 3; }), HasSubstr("expected a JSON object"));
  EXPECT_THAT(error_with(about, tokens.substr(0, tokens.size() - 1)), HasSubstr("truncated"));
  EXPECT_THAT(error_with(about.substr(0, about.size() / 2), tokens), HasSubstr("valid JSON"));

  std::string bad_mask = tokens;
  bad_mask.back() = 7;  // the mask is stored last: one byte a value
  EXPECT_THAT(error_with(about, bad_mask), HasSubstr("mask"));
  fs::remove(folder_ / "store.json");
  EXPECT_THAT(input_error([&] { TokenStore::open(folder_); }), HasSubstr("store.json"));
}

TEST_F(TokenStoreTest, RefusesOffsetsThatDoNotDivideTheTokens) {
  write({{{1, 2, 3}, {1, 1, 1}, ""}, {{4, 5}, {1, 1}, ""}}, 0);
  for (const std::vector<int64_t>& offsets :
       {std::vector<int64_t>{0, 3, 4}, {1, 3, 5}, {0, 7, 5}, {0, -1, 5}, {0, 0, 5}, {0, 5, 5}}) {
    const auto reader = SafetensorsReader::open(folder_ / "tokens.safetensors");
    NamedTensors tensors;
    for (const std::string& name : reader.names()) {
      tensors.emplace_back(name, name == "train.offsets" ? at::tensor(offsets) : reader.read(name));
    }
    write_safetensors(folder_ / "tokens.safetensors", tensors, reader.metadata());
    EXPECT_THAT(input_error([&] { TokenStore::open(folder_); }), HasSubstr("offsets of train"));
  }
}

TEST_F(TokenStoreTest, TheOlderStoreStaysUntilTheNewOneIsWhole) {
  write({{{1, 2, 3}, {1, 1, 1}, ""}}, 0);
  fs::create_directories(temporary_ / ".store.new.999999999");  // left by a killed process
  {
    TokenStoreWriter writer(folder_, 0, 1000);
    writer.add({{4, 5}, {1, 1}, ""});
    EXPECT_THAT(TokenStore::open(folder_).sample(Split::train, 0).ids, ElementsAre(1, 2, 3));
  }
  EXPECT_THAT(TokenStore::open(folder_).sample(Split::train, 0).ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(std::distance(fs::directory_iterator(temporary_.path()), {}), 1);
}

TEST_F(TokenStoreTest, RefusesAFolderThatHoldsSomethingElse) {
  fs::create_directories(folder_);
  write_file_atomically(folder_ / "letter", "dear");
  EXPECT_THAT(input_error([&] { TokenStoreWriter(folder_, 0, 10); }), HasSubstr("letter"));
  EXPECT_THAT(input_error([&] { TokenStoreWriter(folder_ / "letter", 0, 10); }), HasSubstr("found a file"));
  EXPECT_EQ(read_file(folder_ / "letter"), "dear");
}

TEST_F(TokenStoreTest, AnOlderStoreIsReplacedAndAReaderOfItGoesOn) {
  const TokenStore old = write({{{1, 2, 3}, {1, 1, 1}, ""}}, 0);
  const TokenStore fresh = write({{{4, 5}, {1, 1}, ""}, {{6}, {1}, ""}}, 0);
  EXPECT_EQ(fresh.size(Split::train), 2);
  EXPECT_THAT(old.sample(Split::train, 0).ids, ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace clover::data
