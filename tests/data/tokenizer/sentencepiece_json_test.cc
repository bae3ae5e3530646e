// tokenizer.json files of SentencePiece kind, compared with the `tokenizers` library
// (scripts/goldens/make_piece_goldens.py).
#include "data/tokenizer/sentencepiece_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "data/files/files.h"
#include "data/files/hash.h"
#include "data/text/utf8.h"
#include "tests/support/goldens.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::data {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A megabyte of the given parts in the order of a linear congruential generator.
std::string megabyte(const json& parts) {
  uint64_t state = 1;
  std::string text;
  while (text.size() < (size_t{1} << 20)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    text += parts[(state >> 33) % parts.size()].get_ref<const std::string&>();
  }
  return text;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int64_t>& ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (int64_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

class Pieces : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> load(const json& tokenizer) {
    write_file_atomically(folder_ / "tokenizer.json", tokenizer.dump());
    return Tokenizer::load(folder_);
  }

  json base(const std::string& name = "pieces-bpe") const {
    return read_json(test::golden_tokenizers() / name / "tokenizer.json");
  }

  std::string error_after(const std::function<void(json&)>& change, const std::string& name = "pieces-bpe") {
    json tokenizer = base(name);
    change(tokenizer);
    return test::input_error([&] { load(tokenizer)->encode("the \xE2\x98\x83 text"); });
  }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(Pieces, EncodeAndDecodeLikeTheReference) {
  const json recorded = read_json(test::golden_tokenizers() / "pieces.json");
  const std::string long_text = megabyte(recorded["parts"]);
  ASSERT_GE(recorded["variants"].size(), 19u);
  for (const json& variant : recorded["variants"]) {
    json tokenizer = base(variant["base"]);
    for (const auto& [place, value] : variant["changes"].items())
      tokenizer[json::json_pointer(place)] = value;
    const auto loaded = load(tokenizer);
    for (size_t i = 0; i < recorded["texts"].size(); ++i) {
      const std::string text = recorded["texts"][i];
      const std::string where = variant["name"].get<std::string>() + ": \"" + text + "\"";
      const std::vector<int64_t> ids = loaded->encode(text);
      EXPECT_EQ(json(ids), variant["ids"][i]) << where;
      EXPECT_EQ(json(loaded->encode(text, {.parse_special = false})), variant["unparsed"][i]) << where;
      EXPECT_EQ(json(loaded->decode(ids, false)), variant["decoded"][i]) << where;
      EXPECT_EQ(json(streamed(*loaded, ids, false)), variant["decoded"][i]) << where;
      EXPECT_EQ(json(loaded->decode(ids)), variant["plain"][i]) << where;
      EXPECT_EQ(json(streamed(*loaded, ids, true)), variant["plain"][i]) << where;
    }
    const std::vector<int64_t> ids = loaded->encode(long_text);
    std::string listed;
    for (int64_t id : ids) listed += std::to_string(id) + ",";
    EXPECT_EQ(json(ids.size()), variant["megabyte"]["tokens"]) << variant["name"];
    EXPECT_EQ(json(hex(fnv1a(listed))), variant["megabyte"]["ids"]) << variant["name"];
    EXPECT_EQ(json(hex(fnv1a(loaded->decode(ids, false)))), variant["megabyte"]["decoded"])
        << variant["name"];
  }
}

// A piece of a megabyte must not take quadratic time.
TEST_F(Pieces, LongPiecesAreQuick) {
  for (const char* name : {"pieces-bpe", "pieces-unigram"}) {
    const auto tokenizer = load(base(name));
    const auto begin = std::chrono::steady_clock::now();
    for (const char* part : {"a", " ", "the", "\xE2\x96\x81", "\xE4\xB8\x80", "\xE2\x98\x83", "<"}) {
      std::string text;
      while (text.size() < (size_t{1} << 20)) text += part;
      EXPECT_FALSE(tokenizer->encode(text).empty());
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  }
}

TEST_F(Pieces, SpansLieInTheTextAndCoverIt) {
  for (const char* name : {"pieces-bpe", "pieces-unigram"}) {
    const auto tokenizer = load(base(name));
    for (const std::string text : {"  the \xE2\x98\x83 <|raw|> and\xC3\xA9  <|left|>x",
                                   "broken \xE2\x98 and \xFF bytes", "\xE2\x96\x81 the"}) {
      const Encoding encoding = tokenizer->encode_with_spans(text, {});
      ASSERT_EQ(encoding.ids.size(), encoding.spans.size());
      EXPECT_EQ(encoding.ids, tokenizer->encode(repair_utf8(text)));
      size_t end = 0;
      for (const auto& [from, to] : encoding.spans) {
        EXPECT_LE(from, to);
        EXPECT_LE(from, end) << "a gap in " << text;
        end = std::max(end, to);
      }
      EXPECT_EQ(end, text.size());
    }
  }
}

TEST_F(Pieces, KnowTheirTokens) {
  const auto tokenizer = load(base());
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->bos(), tokenizer->token_id("<s>"));
  EXPECT_EQ(tokenizer->encode("the", {.add_bos = true}).front(), tokenizer->bos());
  EXPECT_TRUE(tokenizer->is_special(*tokenizer->token_id("</s>")));
  EXPECT_EQ(tokenizer->token_id(" the"), tokenizer->token_id("\xE2\x96\x81the"));
  EXPECT_EQ(tokenizer->token_bytes(*tokenizer->token_id(" the"), false), " the");
  EXPECT_EQ(tokenizer->token_bytes(*tokenizer->token_id(" the"), true), "the");
  EXPECT_EQ(tokenizer->token_bytes(*tokenizer->token_id("<0xE2>"), false), "\xE2");
  for (int64_t id : {int64_t{-1}, tokenizer->vocab_size(), INT64_MAX}) {
    EXPECT_EQ(tokenizer->token_bytes(id, true), "");
    EXPECT_FALSE(tokenizer->is_special(id));
  }
}

// The hash is that of the folder's tokenizer.model, which heads and stores may have recorded.
TEST_F(Pieces, BesideTheModelFileTheHashIsTheModels) {
  json tokenizer = base();
  json& listed = tokenizer["added_tokens"];
  listed.erase(listed.end() - 4, listed.end());
  load(tokenizer);
  const std::string alone = Tokenizer::load(folder_)->hash();
  write_file_atomically(folder_ / "tokenizer.model",
                        read_file(test::golden_tokenizers() / "sentencepiece-bpe" / "tokenizer.model"));
  const std::string both = Tokenizer::load(folder_)->hash();
  std::filesystem::remove(folder_ / "tokenizer.json");
  EXPECT_EQ(Tokenizer::load(folder_)->hash(), both);
  EXPECT_NE(alone, both);
}

TEST_F(Pieces, TheirFileDecidesBesideAnOlderModelFile) {
  write_file_atomically(folder_ / "tokenizer.model",
                        read_file(test::golden_tokenizers() / "sentencepiece-bpe" / "tokenizer.model"));
  const auto tokenizer = load(base());
  EXPECT_EQ(tokenizer->encode("<|raw|>"), (std::vector<int64_t>{640}));

  // If tokenizer.json is not supported, tokenizer.model is used, and the reason is printed.
  json other = base();
  other["normalizer"] = {{"type", "Lowercase"}};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(load(other)->vocab_size(), 640);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("tokenizer.model is read in place"), HasSubstr("Lowercase")));
}

// Early Llama folders state special tokens with "normalized": true; transformers' Llama class ignores that.
TEST_F(Pieces, OfTheLlamaClassFindTokensInTheTextAsItIs) {
  json tokenizer = base();
  tokenizer["normalizer"] = {{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}};
  for (json& token : tokenizer["added_tokens"]) token["normalized"] = true;
  write_file_atomically(folder_ / "tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  const auto loaded = load(tokenizer);
  const auto ids = loaded->encode("</s><s>the");
  ASSERT_GE(ids.size(), 3u);
  EXPECT_EQ(ids[0], 2);
  EXPECT_EQ(ids[1], 1);
  EXPECT_EQ(loaded->decode(std::vector<int64_t>{2}), "");
}

// For published Llama folders transformers' Llama class puts a space before the text, and none after an added
// token unless `legacy` is set; the model_type mistral does not use that class.
TEST_F(Pieces, OfTheLlamaClassHaveItsSpacesWhateverTheFileSays) {
  const char* mark = "\xE2\x96\x81";
  json file = base();
  file["normalizer"] = {{"type", "Sequence"},
                        {"normalizers",
                         {{{"type", "Prepend"}, {"prepend", mark}},
                          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}}}}};
  file["pre_tokenizer"] = nullptr;
  const json variants = read_json(test::golden_tokenizers() / "pieces.json");
  const auto expect = [&](const char* config, const char* model, const char* name) {
    write_file_atomically(folder_ / "tokenizer_config.json", config);
    write_file_atomically(folder_ / "config.json", model);
    const auto loaded = load(file);
    for (const json& variant : variants["variants"]) {
      if (variant["name"] != name) continue;
      for (size_t i = 0; i < variants["texts"].size(); ++i) {
        const std::string text = variants["texts"][i];
        if (text.find("norm") != text.npos) continue;  // the Llama class matches this token in the raw text
        EXPECT_EQ(json(loaded->encode(text)), variant["ids"][i]) << config << model << text;
        EXPECT_EQ(json(loaded->decode(loaded->encode(text))), variant["plain"][i]) << config << model << text;
      }
    }
    return loaded->hash();
  };
  const char* llama = R"({"model_type": "llama"})";
  const std::string first =
      expect(R"({"tokenizer_class": "LlamaTokenizer", "legacy": false})", llama, "metaspace first");
  EXPECT_NE(first, expect(R"({"tokenizer_class": "LlamaTokenizerFast", "legacy": true})", llama,
                          "metaspace always"));
  EXPECT_NE(first, expect(R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})", llama,
                          "metaspace never"));
  expect(R"({"tokenizer_class": "LlamaTokenizer"})", R"({"model_type": "mistral"})", "prepend and replace");
  expect(R"({"tokenizer_class": "PreTrainedTokenizerFast"})", llama, "prepend and replace");
}

TEST_F(Pieces, NameWhatIsNotSupported) {
  EXPECT_EQ(error_after([](json&) {}), "");
  EXPECT_THAT(error_after([](json& t) {
                t["normalizer"] = {{"type", "Precompiled"}};
              }),
              HasSubstr("Precompiled"));
  EXPECT_THAT(error_after([](json& t) {
                t["pre_tokenizer"] = {{"type", "Whitespace"}};
              }),
              HasSubstr("Whitespace"));
  EXPECT_THAT(error_after([](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["prepend_scheme"] = "last"; }),
              HasSubstr("last"));
  EXPECT_THAT(error_after([](json& t) { t["decoder"] = {{"type", "WordPiece"}}; }), HasSubstr("WordPiece"));
  EXPECT_THAT(error_after([](json& t) { t["decoder"]["decoders"][3]["stop"] = 2; }), HasSubstr("Strip"));
  EXPECT_THAT(error_after([](json& t) { t["model"]["unk_token"] = "none such"; }), HasSubstr("unk_token"));
  EXPECT_THAT(error_after([](json& t) { t["model"]["dropout"] = 0.1; }), HasSubstr("dropout"));
  EXPECT_THAT(error_after([](json& t) { t["model"]["merges"][1] = "a"; }), HasSubstr("merges[1]"));
  EXPECT_THAT(error_after([](json& t) { t["model"]["vocab"]["x"] = -3; }), HasSubstr("\"x\""));
  EXPECT_THAT(error_after([](json& t) { t["model"]["vocab"][7] = json::array({"x"}); }, "pieces-unigram"),
              HasSubstr("vocab[7]"));
  EXPECT_THAT(
      error_after([](json& t) { t["model"]["vocab"][7][0] = std::string(5000, 'x'); }, "pieces-unigram"),
      HasSubstr("4096"));
  EXPECT_THAT(error_after([](json& t) { t["model"]["unk_id"] = 100000; }, "pieces-unigram"),
              HasSubstr("unk_id"));
}

// A part of the wrong type, anywhere, is an error or harmless, never a crash.
TEST_F(Pieces, AnyPartMayBeAnything) {
  const std::vector<json> odd = {
      nullptr, 1, -2.5, true, "", "text", json::array(), json::object(), json::array({nullptr})};
  std::mt19937 source(23);
  for (const char* name : {"pieces-bpe", "pieces-unigram"}) {
    const json whole = base(name);
    std::vector<json::json_pointer> places;
    const std::function<void(const json&, const json::json_pointer&)> walk =
        [&](const json& value, const json::json_pointer& place) {
          places.push_back(place);
          size_t children = 0;
          if (value.is_object()) {
            for (const auto& [key, child] : value.items())
              if (++children < 12) walk(child, place / key);
          } else if (value.is_array()) {
            for (const json& child : value)
              if (++children < 12) walk(child, place / (children - 1));
          }
        };
    walk(whole, json::json_pointer());
    for (const json::json_pointer& place : places) {
      json tokenizer = whole;
      tokenizer[place] = odd[source() % odd.size()];
      test::input_error([&] {
        const auto loaded = load(tokenizer);
        const auto ids = loaded->encode("  the \xE2\x98\x83\n<|raw|> x");
        loaded->decode(ids);
      });
    }
  }
}

}  // namespace
}  // namespace clover::data
